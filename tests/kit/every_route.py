"""Every request that the application's own routes can take which names a topic, for tests.

Routes are found in the application, places in its OpenAPI: path parameters, and fields of bodies. What a
field or a parameter needs to hold stands here by name. A route with one that is not known here is an error:
say what it takes, and whether it names a topic.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
from fastapi import FastAPI

Schema = Mapping[str, Any]
Way = tuple[str | int, ...]
"""The keys that lead to a place in a body."""

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
ARROW = "application/vnd.apache.arrow.stream"
VALUES = {
    "application/x-ndjson": b'{"zstd":1}\n',
    "application/json": b'[{"zstd":1}]',
    "text/csv": b"zstd\n1\n",
    "application/octet-stream": b"zstd",
}
"""Bodies without fields that are known here: bare values."""

TOPIC = "\x00topic"
"""Stands where the name of the topic goes."""

PAGES = ("docs", "redoc", "openapi.json")
"""Folders of files that are for people, and know nothing of the cluster."""

CONSOLE = "console"
"""The folder of pages that do (tests/api/console/test_every_page.py)."""

TOPIC_FIELDS = {"topic", "topics", "topic_name", "topic_pattern"}
PATH = {
    "broker": "1",
    "partition": "0",
    "schema_id": "17",
    "group": "g",
    "instance": "i",
    "consumer": "i",
    "mirror": "m",
    "name": "compression.type",
}
LATER = "2100-01-01T00:00:00Z"

QUERY = {
    "acks": "all",
    "before": "1",
    "force": "true",
    "max_bytes": "1000",
    "offset": "0",
    "timeout": "0",
    "timestamp": "0",
    "to_time": LATER,
}
NOT_SENT = {
    "before",
    "version",
    "forget",
    "generation",
    "schema",
    "schema_id",
    "schema_version",
    "subject",
    "subject_name_strategy",
    "to_version",
}
"""Of a query or a body: what has to fit something that was answered before, or the BODY's `type`."""

BODY: dict[str, Any] = {
    "configs": [],
    "data": "x",
    "groups": [],
    "digest": "0" * 32,
    "id": "e",
    "key": "AAAA",
    "key_schema": None,
    "key_schema_id": 17,
    "length": 1,
    "metadata": "m",
    "mirror": "m",
    "name": "compression.type",
    "now": True,
    "offset": 0,
    "on_gap": "stop",
    "operation": "SET",
    "partition": 0,
    "partition_id": 0,
    "partitions_count": 3,
    "path": f"staging/{'0' * 32}-{'0' * 16}.arrow",
    "records": 1,
    "replication_factor": 1,
    "sample": 1,
    "source": "",
    "start": 0,
    "timestamp": 0,
    "to_time": LATER,
    "topic_id": "t",
    "type": "STRING",
    "value": "zstd",
    "value_schema": None,
    "value_schema_id": 17,
    "wait_ms": 0,
    "dry_run": True,
    "time": "2100-01-01",
}
"""What a field holds that has no fields of its own; one that is text in several formats is base64, too."""


@dataclass(frozen=True)
class Request:
    """A request, ready but for the name in it. `place` says where that stands."""

    method: str
    route: str
    place: str
    path: str
    media_type: str = ""
    body: Any = None
    query: Mapping[str, str] = field(default_factory=dict)

    def url(self, name: str) -> str:
        return self.path.replace(TOPIC, name) + (f"?{urlencode(self.query)}" if self.query else "")

    def content(self, name: str) -> bytes | None:
        if self.body is None:
            return None
        if isinstance(self.body, bytes):
            return self.body
        if self.media_type == ARROW:
            return _arrow(self.body, name)
        return json.dumps(self.body).replace(json.dumps(TOPIC)[1:-1], name).encode()

    def __str__(self) -> str:
        return f"{self.method} {self.route} {self.media_type} ({self.place})"


def routes(app: FastAPI) -> list[tuple[str, str]]:
    """Every method and path of `app` but those of its PAGES and of CONSOLE. Raises when OpenAPI lacks one."""
    found = [pair for pair in _all(app) if pair[1].split("/")[1] not in (*PAGES, CONSOLE)]
    shown = app.openapi()["paths"]
    for method, path in found:
        assert method.lower() in shown.get(path, {}), f"{method} {path} is not in the OpenAPI"
    return found


def pages(app: FastAPI) -> list[tuple[str, str]]:
    """Every method and path of the console."""
    return [pair for pair in _all(app) if pair[1].split("/")[1] == CONSOLE]


def _all(app: FastAPI) -> list[tuple[str, str]]:
    found = []
    for route in app.routes:
        contexts = getattr(route, "effective_route_contexts", lambda route=route: [route])
        each: Any  # FastAPI keeps the routes of a router together
        for each in contexts():
            found += [(method, each.path) for method in sorted(each.methods)]
    return found


def requests_of(app: FastAPI, method: str, path: str, cluster_id: str) -> Iterator[Request]:
    """A request for each place of a route where a topic can stand, in every format that the body may have."""
    schema = app.openapi()
    operation = schema["paths"][path][method.lower()]
    parameters = operation.get("parameters", [])
    wanted = [p["name"] for p in parameters if p["in"] == "query" and _is_sent(p)]
    query = {name: _known(QUERY, name, path) for name in wanted}
    content = operation.get("requestBody", {}).get("content", {})
    filled, named = _filled(path, cluster_id)
    for media_type, wrapped in content.items() or [("", None)]:
        if named:
            body = None if wrapped is None else _body(schema, wrapped["schema"], media_type, path)
            yield Request(method, path, "path", filled, media_type, body, query)
        elif wrapped is not None:
            for place, body in _bodies(schema, wrapped["schema"], media_type, path):
                yield Request(method, path, place, filled, media_type, body, query)


def _is_sent(parameter: Mapping[str, Any]) -> bool:
    """Whether requests send this query parameter. Optional ones that cannot name a topic are left out, unless
    QUERY has them.
    """
    name = parameter["name"]
    return name in QUERY or (name not in NOT_SENT and (parameter["required"] or "topic" in name.lower()))


def without_topic(app: FastAPI, method: str, path: str, cluster_id: str) -> str | None:
    """The URL of a route whose path names no topic; None of any other."""
    filled, named = _filled(path, cluster_id)
    return None if named else filled


def _filled(path: str, cluster_id: str) -> tuple[str, bool]:
    parts, named = path.split("/"), False
    for index, part in enumerate(parts):
        if part.startswith("{"):
            name, _, rest = part[1:].partition("}")
            named |= name in TOPIC_FIELDS
            known = {**PATH, "cluster_id": cluster_id, **dict.fromkeys(TOPIC_FIELDS, TOPIC)}
            parts[index] = _known(known, name, path) + rest
    return "/".join(parts), named


def _known(table: Mapping[str, Any], name: str, path: str) -> Any:
    assert name in table, f"say in {__name__} what {name!r} of {path} takes, and whether it names a topic"
    return table[name]


def _body(schema: Schema, wanted: Schema, media_type: str, path: str) -> Any:
    """A body for a route whose path names the topic."""
    if path.endswith("/values"):
        return VALUES[media_type]
    return {"value": True} if media_type == ARROW else _sample(schema, wanted, path, ())


def _bodies(schema: Schema, wanted: Schema, media_type: str, path: str) -> Iterator[tuple[str, Any]]:
    if media_type == ARROW:
        assert path.endswith("/transactions"), (
            f"say in {__name__} where a topic stands in the Arrow of {path}"
        )
        yield "column topic", {"topic": True}
        offsets = [{"topic": TOPIC, "partition": 0, "offset": 0}]
        yield "offsets in the metadata", {"offsets": offsets}
        return
    for way in _ways(schema, wanted):
        yield ".".join(map(str, way)), _sample(schema, wanted, path, way)


def _resolved(schema: Schema, wanted: Schema) -> Schema:
    """The schema itself: without a reference, and of several the first that is not null."""
    while True:
        if "$ref" in wanted:
            wanted = schema["components"]["schemas"][wanted["$ref"].rsplit("/", 1)[1]]
        elif "anyOf" in wanted:
            wanted = next(one for one in wanted["anyOf"] if one.get("type") != "null")
        else:
            return wanted


def _ways(schema: Schema, wanted: Schema) -> Iterator[Way]:
    """The ways to every field that names a topic."""
    wanted = _resolved(schema, wanted)
    for name, given in wanted.get("properties", {}).items():
        inner = _resolved(schema, given)
        items = _resolved(schema, inner.get("items", {}))
        if name in TOPIC_FIELDS:
            yield (name, 0) if "items" in inner else (name,)
        else:
            yield from ((name, *way) for way in _ways(schema, inner))
            yield from ((name, 0, *way) for way in _ways(schema, items))


def _sample(schema: Schema, wanted: Schema, path: str, way: Way) -> Any:
    """A value for the schema. Of the fields that could name a topic it has only those on the `way`."""
    wanted = _resolved(schema, wanted)
    if "items" in wanted:
        return [_sample(schema, wanted["items"], path, way[1:])]
    made = {}
    for name, given in wanted["properties"].items():
        inner = _resolved(schema, given)
        if way[:1] != (name,) and ([*_ways(schema, {"properties": {name: inner}})] or name in NOT_SENT):
            continue
        if name in TOPIC_FIELDS:
            made[name] = [TOPIC] if "items" in inner else TOPIC
        elif name == "partition" and "{partition}" in path:
            continue
        elif "properties" in inner or _resolved(schema, inner.get("items", {})).get("properties"):
            made[name] = _sample(schema, inner, path, way[1:])
        else:
            made[name] = _known(BODY, name, path)
    return made


def _arrow(body: Mapping[str, Any], name: str) -> bytes:
    columns = {"value": pa.array([b"x"])}
    if "topic" in body:
        columns["topic"] = pa.array([name])
    said = {"offsets": body["offsets"]} if "offsets" in body else {}
    text = json.dumps(said).replace(json.dumps(TOPIC)[1:-1], name)
    if "offsets" in body:  # and no records
        columns = {"topic": pa.array([], pa.string()), "value": pa.array([], pa.binary())}
    table = pa.table(columns).replace_schema_metadata({"transaction": text})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data
