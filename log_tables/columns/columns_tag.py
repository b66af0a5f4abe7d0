"""The tag of a segment that says how its declared columns were made.

It is the id of the declaration, and the ids of schemas that some values name and that were not known then:

    3f0a1c5e77d2b904            columns of JSON
    3f0a1c5e77d2b904.avro?17    columns of Avro; the values of schema 17 have none
"""

from collections.abc import Iterable

from log_tables.limits import MISSING_SCHEMAS_MAX
from log_tables.schemas.decoded import Format
from log_tables.schemas.schema import SchemaId

_MISSING, _BETWEEN, _PART = "?", "+", "."


def tagged(declaration_id: str, missing: Iterable[SchemaId] = ()) -> str:
    """The tag; of the ids that are `missing` only the first MISSING_SCHEMAS_MAX are kept."""
    ids = sorted(map(str, missing), key=lambda each: (len(each), each))[:MISSING_SCHEMAS_MAX]
    return declaration_id + (_MISSING + _BETWEEN.join(ids) if ids else "")


def declaration_id(tag: str) -> str:
    """The id of the declaration in a tag."""
    return tag.partition(_MISSING)[0]


def missing_schemas(tag: str) -> frozenset[SchemaId]:
    """The ids of schemas in a tag that were not known."""
    ids = tag.partition(_MISSING)[2]
    return frozenset(int(each) if each.isdecimal() else each for each in ids.split(_BETWEEN) if each)


def joined_tag(tags: Iterable[str]) -> str:
    """The tag of a segment that is made of those with `tags`, which are of one declaration."""
    found = [*tags]
    return tagged(declaration_id(found[0]), frozenset[SchemaId]().union(*map(missing_schemas, found)))


def format_of(tag: str) -> Format | None:
    """The format of the values in a tag; None for one that is not known here."""
    parts = declaration_id(tag).split(_PART)
    try:
        return Format(parts[1]) if len(parts) > 1 else Format.JSON
    except ValueError:
        return None


def has_schema(tag: str) -> bool:
    """Whether all values of the segment had one schema, which they did not name."""
    return declaration_id(tag).count(_PART) > 1
