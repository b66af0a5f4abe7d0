"""The OpenAPI schemas of produce and transactions, whose routes decode their bodies themselves."""

from typing import Any

from pydantic import BaseModel, Field

from api.media import Format, ValueFormat

_BASE64 = {"type": ["string", "null"], "contentEncoding": "base64"}
_SHAPES: dict[Format, dict[str, Any]] = {
    Format.JSON: {},
    Format.BINARY: _BASE64,
    Format.TEXT: {"type": ["string", "null"]},
}


class Placement(BaseModel):
    """The partition and offset of a record, or the reason why it failed."""

    partition: int
    offset: int | None = Field(
        description="Null for a failed record, for acks=0, and for a repeat of an old request."
    )
    error_code: int | None
    error: str | None


class Produced(BaseModel):
    """One entry for each record, in request order."""

    offsets: list[Placement]
    key_schema_id: int | None = Field(description="Of formats with schemas.")
    value_schema_id: int | None


def _records(shape: dict[str, Any], **more: dict[str, Any]) -> dict[str, Any]:
    header = {
        "type": "object",
        "required": ["key"],
        "properties": {"key": {"type": "string"}, "value": _BASE64},
    }
    record = {
        "type": "object",
        "properties": {
            **more,
            "key": shape,
            "value": {**shape, "description": "Null or absent: a tombstone."},
            "partition": {"type": "integer", "description": "Not allowed if the path names a partition."},
            "headers": {"type": "array", "items": header},
            "timestamp": {
                "type": "integer",
                "description": "Milliseconds since 1970 UTC; by default the time of the request.",
            },
        },
    }
    records = {"type": "array", "minItems": 1, "items": record}
    return {"type": "object", "required": ["records"], "properties": {"records": records}}


_SCHEMA_ID = {"type": ["integer", "null"], "description": "The id of a schema of the topic's registry."}
_SCHEMA = {"type": ["string", "null"], "description": "A schema that the registry has, instead of its id."}
_OF_SCHEMAS = _records(_SHAPES[Format.JSON])
_OF_SCHEMAS["properties"] |= {
    "key_schema_id": _SCHEMA_ID,
    "key_schema": _SCHEMA,
    "value_schema_id": _SCHEMA_ID,
    "value_schema": _SCHEMA,
}

PRODUCE_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            **{form.value: {"schema": _records(shape)} for form, shape in _SHAPES.items()},
            "application/json": {"schema": _records(_SHAPES[Format.JSON])},
            **{form.value: {"schema": _OF_SCHEMAS} for form in Format if form.kind is not None},
            Format.ARROW.value: {
                "schema": {
                    "type": "string",
                    "format": "binary",
                    "description": "An Arrow IPC stream: value, and optionally key, partition, timestamp, "
                    "headers.",
                }
            },
        },
    }
}

_BYTES = {"type": "string", "format": "binary"}

VALUES_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            ValueFormat.NDJSON.value: {
                "schema": {**_BYTES, "description": "A JSON value on each line; blank lines are none."}
            },
            ValueFormat.JSON.value: {
                "schema": {"description": "An array of values, or one value that is no array."}
            },
            ValueFormat.CSV.value: {
                "schema": {**_BYTES, "description": "The first line names the fields of each row."}
            },
            ValueFormat.BYTES.value: {"schema": {**_BYTES, "description": "One value, as it is."}},
        },
    }
}

_INTEGER = {"type": "integer"}
_STRING = {"type": "string"}
_OFFSETS = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["topic", "partition", "offset"],
        "properties": {
            "topic": _STRING,
            "partition": _INTEGER,
            "offset": {
                **_INTEGER,
                "description": "For an instance, of the last record processed; else, of the next record.",
            },
            "metadata": _STRING,
        },
    },
}
_RUN = {
    "type": "object",
    "properties": {
        "topic": _STRING,
        **dict.fromkeys(("topic_id", "digest"), _STRING),
        **dict.fromkeys(("partition", "start", "length", "records"), _INTEGER),
    },
}
_STAGED = {
    "type": "object",
    "properties": {"path": _STRING, "runs": {"type": "array", "items": _RUN}},
}
_FRAME: dict[str, Any] = {
    "generation": {
        **_INTEGER,
        "description": "The newest `Generation` that the instance knows; 409 if it has changed.",
    },
    "offsets": {**_OFFSETS, "description": "Offsets that are committed with the records."},
    "staged": {"type": "array", "items": _STAGED, "description": "Files of staged records."},
    "forget": {"type": "array", "items": _STRING, "description": "Retry keys whose answers have arrived."},
}


def _transaction(shape: dict[str, Any]) -> dict[str, Any]:
    properties = {**_FRAME, **_records(shape, topic=_STRING)["properties"]}
    return {"type": "object", "properties": properties}


TRANSACTION_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            **{form.value: {"schema": _transaction(shape)} for form, shape in _SHAPES.items()},
            "application/json": {"schema": _transaction(_SHAPES[Format.JSON])},
            Format.ARROW.value: {
                "schema": {
                    "type": "string",
                    "format": "binary",
                    "description": "An Arrow IPC stream: topic, value, and optionally key, partition, "
                    "timestamp, headers. The other fields are JSON in the schema's metadata, under "
                    "'transaction'.",
                }
            },
        },
    }
}
