"""The schemas that a produce request names, and its JSON as values of them.

A request names a schema by its id, by a version of a subject, or by its whole text, which the registry must
have under the subject: nothing is registered here.
"""

from dataclasses import dataclass

from api.errors import InvalidSchemaNamed
from api.wire.json_bounds import work_cost
from api.wire.offload import is_large_json
from api.wire.room import Reserve
from log_tables.cluster.topic import Topic
from log_tables.cluster.topic_settings import VALUE_FORMAT, VALUE_SCHEMA, VALUE_SCHEMAS
from log_tables.errors import InvalidRecord, InvalidValue
from log_tables.limits import NAMED_SCHEMAS_MAX, SCHEMA_TEXT_MAX_CHARS
from log_tables.schemas.encoder import encoded, encoder_of
from log_tables.schemas.registry import Registered, Registry
from log_tables.schemas.schema import InvalidSchema, Schema, SchemaKind, Unencodable

_ID_MAX = 2**31 - 1
"""Ids of registries are Java's."""


def _no_bounds(_: int) -> None:
    pass


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

    `made_bytes` is the size of the values that were made since `begin`.
    """

    def __init__(self, topic: str, registry: Registry | None, no_place: str | None) -> None:
        """`no_place` says why the topic of this name has none, if so."""
        self.topic, self._registry, self._no_place = topic, registry, no_place
        self._found: dict[NamedSchema, FoundSchema | InvalidSchemaNamed] = {}
        self.wanted: dict[NamedSchema, None] = {}
        self.made_bytes = 0
        self._reserve: Reserve = _no_bounds

    def begin(self, reserve: Reserve) -> None:
        """Make values from now on; `reserve` is told what they take."""
        self.made_bytes, self._reserve = 0, reserve

    def encoded(self, text: bytes, schema: FoundSchema) -> bytes:
        """The value of `schema` that JSON, which is not too deep, stands for. Raises Unencodable, and what
        `reserve` raises.
        """
        self._reserve(self.made_bytes + _work_bytes(text))
        value = schema.encoded(text)
        self.made_bytes += len(value)
        self._reserve(self.made_bytes)
        return value

    @property
    def has_some(self) -> bool:
        """Whether some were looked up."""
        return bool(self._found)

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


def _work_bytes(text: bytes) -> int:
    """About the bytes that the parts of a JSON text take while it is encoded."""
    return work_cost(text) if is_large_json(text) else 0


def misfit(error: Unencodable, schema: FoundSchema, where: str, **facts: int) -> InvalidValue:
    """The error of JSON that is no value of `schema`."""
    path = "".join(f"/{name}" for name in error.path)[:200]
    return InvalidValue(
        f"{where} is no value of schema {schema.schema_id}: {error!s:.400}; fix it",
        **facts,
        path=path,
        reason=error.reason,
    )
