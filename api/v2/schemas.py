"""Version 2: the schemas that a topic's values name, and how they fit its declared columns."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from api.client_topics import listed_topic
from api.errors import error_responses
from api.requests.envelope import V2Response
from api.requests.route_gateway import Here
from api.requests.strict import StrictRoute
from log_tables.cluster.topic import Topic
from log_tables.cluster.topic_settings import VALUE_FORMAT, VALUE_SCHEMAS
from log_tables.columns.proposed import SchemaCheck, checked, proposed
from log_tables.columns.record_columns import resolved
from log_tables.errors import InvalidArgument, NotFound
from log_tables.schemas.decoded import Format
from log_tables.schemas.decoder import Decoder, decoder_of
from log_tables.schemas.registry import Registered, Registry
from log_tables.schemas.schema import InvalidSchema, Schema, SchemaKind

router = APIRouter(tags=["v2 schemas"], default_response_class=V2Response, route_class=StrictRoute)

TopicName = Annotated[str, Path(examples=["flights"])]

_FORMATS = {
    SchemaKind.AVRO: Format.AVRO,
    SchemaKind.PROTOBUF: Format.PROTOBUF,
    SchemaKind.JSON: Format.JSON_SCHEMA,
}


class ReferenceView(BaseModel):
    name: str
    text: str


class SchemaView(BaseModel):
    type: str = Field(description="AVRO, PROTOBUF or JSON.")
    text: str
    references: list[ReferenceView] = Field(
        description="All that it refers to, each after those that it needs itself."
    )


class RegisteredView(SchemaView):
    subject: str
    version: int
    id: int


class ColumnView(BaseModel):
    column: str = Field(description="The declared column.")
    in_schema: bool = Field(description="Whether the schema has the field of the column.")
    reason: str | None = Field(
        description="Why not all values of the schema fit the column; null if they do."
    )


class SubjectView(RegisteredView):
    format: str = Field(description="The `value.columns.format` of its values.")
    value_columns: str = Field(description="The declared columns, and those that the schema proposes.")
    columns: list[ColumnView]
    fields_without_column: list[str]


@router.get(
    "/topics/{topic}/schemas/{schema_id}",
    summary="Get a schema that values of a topic name",
    responses=error_responses(404, 422, 503),
)
def get_schema(
    here: Here,
    topic: TopicName,
    schema_id: Annotated[str, Path(description="The id, or the UUID in a header.", examples=["17"])],
) -> SchemaView:
    """The schema with all that it refers to. Whoever may describe the topic may read the schemas of the place
    that its setting `value.columns.schemas` names.
    """
    registry = _registry(here, listed_topic(here, topic))
    wanted = int(schema_id) if schema_id.isdecimal() and len(schema_id) <= _ID_DIGITS else schema_id.lower()
    if registry.known(wanted) is None:
        registry.look_up([wanted])
    found = registry.known(wanted)
    if found is None:
        raise NotFound(registry.reason(wanted) or f"schema {schema_id[:40]!r} is not known")
    return SchemaView(**_schema(found))


_ID_DIGITS = 10


@router.get(
    "/topics/{topic}/schemas",
    summary="Get the newest schema of a topic, and how it fits its columns",
    responses=error_responses(404, 422, 503),
)
def get_subject(
    here: Here,
    topic: TopicName,
    subject: Annotated[
        str | None,
        Query(description="The subject; `{topic}-value` unless given.", examples=["flights-value"]),
    ] = None,
    version: Annotated[int | None, Query(description="The version; the latest unless given.", ge=1)] = None,
) -> SubjectView:
    """A version of a subject, the columns that it proposes, and how its values fit the declared ones."""
    described = listed_topic(here, topic)
    registry, name = _registry(here, described), subject or f"{described.name}-value"
    found = registry.registered(name, version)
    if found is None:
        known = ", ".join(registry.subjects()[:_SUBJECTS_SHOWN]) or "none"
        which = "" if version is None else f" with a version {version}"
        raise NotFound(f"there is no subject {name[:100]!r}{which}; the subjects are {known}")
    try:
        return _subject(described, registry, found)
    except InvalidSchema as invalid:
        raise InvalidArgument(f"schema {found.schema_id} cannot be used: {invalid}") from None


_SUBJECTS_SHOWN = 20


def _subject(described: Topic, registry: Registry, found: Registered) -> SubjectView:
    """Raises InvalidSchema."""
    schema = registry.schema_of(found)
    declared = described.config.columns
    said = check_schema(schema, described)
    return SubjectView(
        **_schema(schema),
        subject=found.subject,
        version=found.version,
        id=found.schema_id,
        format=_FORMATS[schema.kind],
        value_columns=proposed(schema, declared).text,
        columns=[
            ColumnView(column=each.column.text, in_schema=each.is_there, reason=each.reason)
            for each in said.columns
        ],
        fields_without_column=[*said.without_column],
    )


def check_schema(schema: Schema, described: Topic) -> SchemaCheck:
    """How values of `schema` fit the columns of a topic, whatever its format is. Raises InvalidSchema."""
    decoder = decoder_of(schema, (0,) if schema.kind is SchemaKind.PROTOBUF else ())
    if not isinstance(decoder, Decoder):
        raise InvalidSchema(decoder)
    declared = described.config.columns
    return checked(schema, declared, resolved(declared, decoder))


def _registry(here: Here, described: Topic) -> Registry:
    """Where a topic has its schemas. Raises InvalidArgument without a place."""
    source = described.config.schema_source
    found = here.cluster.schema_sources.registry(source)
    if found is None:
        raise InvalidArgument(
            f"topic {described.name!r} has no place of schemas; set {VALUE_SCHEMAS} to topic:NAME, the URL "
            f"of a registry or files, and {VALUE_FORMAT} to how values are encoded"
        )
    return found


def _schema(schema: Schema) -> dict[str, Any]:
    references = [ReferenceView(name=name, text=text) for name, text in schema.references]
    return {"type": schema.kind.value, "text": schema.text, "references": references}
