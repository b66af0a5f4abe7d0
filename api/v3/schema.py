"""The OpenAPI schemas of produce in version 3, whose routes decode their bodies themselves."""

from typing import Any

_TYPED = {
    "type": "object",
    "required": ["type", "data"],
    "properties": {
        "type": {"enum": ["BINARY", "JSON", "STRING"]},
        "data": {"description": "Base64 for BINARY, a string for STRING, anything for JSON."},
    },
}
_HEADER = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "value": {"type": "string", "contentEncoding": "base64"}},
}
_RECORD: dict[str, Any] = {
    "partition_id": {"type": "integer"},
    "headers": {"type": "array", "items": _HEADER},
    "key": _TYPED,
    "value": _TYPED,
    "timestamp": {"type": "string", "format": "date-time", "description": "Or milliseconds since 1970."},
}
_ENTRY = {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}, **_RECORD}}


def _body(schema: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _answer(status: str, schema: dict[str, Any]) -> dict[str, Any]:
    content = {"application/json": {"schema": schema}}
    return {"responses": {status: {"description": "The result of each record", "content": content}}}


_PLACED: dict[str, Any] = {
    "error_code": {"type": "integer", "description": "200 for a record that was appended."},
    "cluster_id": {"type": "string"},
    "topic_name": {"type": "string"},
    "partition_id": {"type": "integer"},
    "offset": {"type": "integer"},
    "timestamp": {"type": "string", "format": "date-time"},
}
_FAILED: dict[str, Any] = {"error_code": {"type": "integer"}, "message": {"type": "string"}}


def _list(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "array",
        "items": {"type": "object", "properties": {"id": {"type": "string"}, **properties}},
    }


RECORDS_BODY = {
    **_body({"type": "object", "properties": _RECORD}),
    **_answer("200", {"type": "object", "properties": _PLACED}),
}
BATCH_BODY = {
    **_body(
        {
            "type": "object",
            "required": ["entries"],
            "properties": {"entries": {"type": "array", "minItems": 1, "items": _ENTRY}},
        }
    ),
    **_answer(
        "207", {"type": "object", "properties": {"successes": _list(_PLACED), "failures": _list(_FAILED)}}
    ),
}
