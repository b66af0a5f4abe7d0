"""The schemas that a produce request names, and its JSON as values of them.

A request names a schema by its id, by a version of a subject, or by its whole text, which the registry must
have under the subject: nothing is registered here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from api.errors import InvalidSchemaNamed
from api.wire.json_bounds import check_depth, work_cost
from api.wire.offload import is_large_json
from api.wire.room import Reserve
from log_tables.cluster.config import VALUE_FORMAT, VALUE_SCHEMA, VALUE_SCHEMAS
from log_tables.cluster.topic import Topic
from log_tables.errors import InvalidRecord, InvalidValue
from log_tables.limits import NAMED_SCHEMAS_MAX, SCHEMA_TEXT_MAX_CHARS
from log_tables.schemas.encoder import encoded, encoder_of
from log_tables.schemas.registry import Registered, Registry
from log_tables.schemas.schema import InvalidSchema, Schema, SchemaKind, Unencodable

_ID_MAX = 2**31 - 1
"""Ids of registries are Java's."""


@dataclass(frozen=True, slots=True)
class NamedSchema:
    """How a request names a schema: by its id, its text, a version of its subject, or the latest one.

    `kind` is its language, as the request says; None if it does not. `checked` says that the schema with the
    id has to be one of the subject.
    """

    subject: str
    kind: SchemaKind | None
    schema_id: int | None = None
    text: str | None = None
    version: int | None = None
    checked: bool = False


@dataclass(frozen=True, slots=True)
class FoundSchema:
    """A schema by its id; `version` is the one of a subject by which it was found, if it was."""

    schema_id: int
    schema: Schema
    version: Registered | None = None

    def encoded(self, text: bytes) -> bytes:
        """The value that JSON stands for, which is Avro's own for Avro, behind the id. Raises Unencodable."""
        return encoded(text, self.schema_id, self.schema, of_avro=True)


def no_place(topic: Topic) -> str | None:
    """Why values of `topic` have no schemas by id; None if they have."""
    if topic.config.encoding.schema is not None:
        return (
            f"values of topic {topic.name!r} have no ids of schemas, but all the one of {VALUE_SCHEMA}; "
            f"send them encoded, as binary, or set {VALUE_SCHEMAS} instead"
        )
    return no_source(topic)


def no_source(topic: Topic) -> str | None:
    """Why the schemas that values of `topic` name are nowhere; None if they have a place."""
    if topic.config.schema_source:
        return None
    return (
        f"topic {topic.name!r} has no place of schemas; set {VALUE_SCHEMAS} to topic:NAME, the URL of a "
        f"registry or files, and {VALUE_FORMAT} to how values are encoded"
    )


class NamedSchemas:
    """The schemas that one request names. They are looked up together, outside of the decoding of the body:
    what is decoded while there are `wanted` ones is decoded again.
    """

    def __init__(self, topic: Topic, registry: Registry | None) -> None:
        self._no_place, self._registry = no_place(topic), registry
        self.topic = topic.name
        self._found: dict[NamedSchema, FoundSchema | InvalidSchemaNamed] = {}
        self.wanted: dict[NamedSchema, None] = {}

    def __len__(self) -> int:
        return len(self._found)

    def of(self, named: NamedSchema) -> FoundSchema | None:
        """The schema; None while it is `wanted`. Raises InvalidSchemaNamed, InvalidRecord."""
        if self._no_place is not None:
            raise InvalidSchemaNamed(self._no_place)
        found = self._found.get(named)
        if isinstance(found, InvalidSchemaNamed):
            raise InvalidSchemaNamed(found.message)
        if found is None and named not in self.wanted:
            if len(self._found) + len(self.wanted) >= NAMED_SCHEMAS_MAX:
                raise InvalidRecord(
                    f"the request names more than {NAMED_SCHEMAS_MAX} schemas; send fewer in one request"
                )
            self.wanted[named] = None
        return found

    def look_up(self) -> None:
        """Find the wanted ones; blocking. Raises LakelogError when the registry cannot answer."""
        if self._registry is None:
            return
        for named in [*self.wanted]:
            try:
                self._found[named] = _found(self._registry, named)
            except InvalidSchemaNamed as error:
                self._found[named] = error.with_traceback(None)
            del self.wanted[named]


def _found(registry: Registry, named: NamedSchema) -> FoundSchema:
    """Raises InvalidSchemaNamed."""
    try:
        found = _named(registry, named)
    except InvalidSchema as invalid:
        raise InvalidSchemaNamed(f"the schema cannot be used: {invalid}") from None
    if named.kind is not None and found.schema.kind is not named.kind:
        raise InvalidSchemaNamed(
            f"schema {found.schema_id} is {found.schema.kind}, not {named.kind}; name its format"
        )
    if not 0 <= found.schema_id <= _ID_MAX:
        raise InvalidSchemaNamed(f"schema {found.schema_id} has an id that no value can name")
    encode = encoder_of(found.schema, True)
    if isinstance(encode, str):
        raise InvalidSchemaNamed(f"schema {found.schema_id} cannot be used: {encode}")
    return found


def _named(registry: Registry, named: NamedSchema) -> FoundSchema:
    """Raises InvalidSchemaNamed, InvalidSchema."""
    if named.schema_id is not None:
        return _of_id(registry, named, named.schema_id)
    if named.text is not None:
        if len(named.text) > SCHEMA_TEXT_MAX_CHARS:
            raise InvalidSchemaNamed(
                f"the schema has {len(named.text)} characters, {SCHEMA_TEXT_MAX_CHARS} are allowed; name its "
                "id instead"
            )
        version = registry.find(named.subject, Schema(named.kind or SchemaKind.AVRO, named.text))
        missing = "is not the schema that the request has"
    else:
        version = registry.registered(named.subject, named.version)
        missing = "is known" if named.version is None else f"has the number {named.version}"
    if version is None:
        raise InvalidSchemaNamed(
            f"no version of the subject {named.subject[:100]!r} {missing}; register it there, which "
            "lakelog does not do, or name the id of another schema"
        )
    return FoundSchema(version.schema_id, registry.schema_of(version), version)


def _of_id(registry: Registry, named: NamedSchema, schema_id: int) -> FoundSchema:
    if registry.known(schema_id) is None:
        registry.look_up([schema_id])
    schema = registry.known(schema_id)
    if schema is None:
        raise InvalidSchemaNamed(registry.reason(schema_id) or f"schema {schema_id} is not known")
    version = registry.find(named.subject, schema) if named.checked else None
    if named.checked and version is None:
        raise InvalidSchemaNamed(
            f"schema {schema_id} is no version of the subject {named.subject[:100]!r}; name another subject, "
            "or none"
        )
    return FoundSchema(schema_id, schema, version)


def encoded_values(
    texts: Sequence[bytes | None], schema: FoundSchema, what: str, reserve: Reserve
) -> list[bytes | None]:
    """Texts of JSON as values of `schema`. `reserve` is told what all that is made takes, before it is made.

    `what` is what they are of their records, for errors. Raises InvalidValue with `index`, `path` and
    `reason`; MalformedBody for a text that is too deep.
    """
    made, size = list[bytes | None](), 0
    for index, text in enumerate(texts):
        if text is None:
            made.append(None)
            continue
        reserve(size + work_of(text))
        try:
            value = encoded_value(text, schema)
        except Unencodable as error:
            raise misfit(error, schema, f"record {index}: the {what}", index=index) from None
        size += len(value)
        reserve(size)
        made.append(value)
    return made


def encoded_value(text: bytes, schema: FoundSchema) -> bytes:
    """Raises Unencodable; MalformedBody for a text that is too deep."""
    check_depth(text)
    return schema.encoded(text)


def work_of(text: bytes) -> int:
    """About the bytes that the parts of a JSON text take while it is encoded."""
    return work_cost(text) if is_large_json(text) else len(text)


def misfit(error: Unencodable, schema: FoundSchema, where: str, **facts: int) -> InvalidValue:
    """The error of JSON that is no value of `schema`."""
    path = "".join(f"/{name}" for name in error.path)[:200]
    return InvalidValue(
        f"{where} is no value of schema {schema.schema_id}: {error!s:.400}; fix it, nothing was written",
        **facts,
        path=path,
        reason=error.reason,
    )
