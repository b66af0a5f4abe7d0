"""Small changes of what a root says: of each field of each action of a commit or a checkpoint, generated."""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

Json = object
Path = tuple[str | int, ...]


class Name(NamedTuple):
    """The name of a small change: its `log`, the action or record, the field, and the kind of change."""

    log: str
    action: str
    field: str
    how: str


class Mutation(NamedTuple):
    """A change of a file: `field` of `action` is what it changes, all of it if that is empty, and `how`.
    `data` makes the file as it is then.
    """

    action: str
    field: str
    how: str
    data: Callable[[], bytes]


def of_commit(data: bytes) -> Iterator[Mutation]:
    """Each action of a commit is missing or there twice; each field is forged, missing, out of range."""
    lines = [json.loads(line) for line in data.splitlines()]
    for number, line in enumerate(lines):
        ((kind, action),) = line.items()
        operation = lines[0]["commitInfo"].get("operation")
        name = f"{operation} {kind}"
        if kind == "txn":
            name += f" {_general(action['appId'])}"
        before, after = lines[:number], lines[number + 1 :]
        yield Mutation(name, "", "missing", partial(_dumped, [*before, *after]))
        yield Mutation(name, "", "doubled", partial(_dumped, [*lines, line]))
        for field, how, changed in of_value(action):
            yield Mutation(name, field, how, partial(_dumped, [*before, {kind: changed}, *after]))


def of_checkpoint(data: bytes) -> Iterator[Mutation]:
    """Each row of a checkpoint is missing or there twice; each field is forged, missing, out of range."""
    table = pq.read_table(pa.BufferReader(data))
    rows = table.to_pylist(maps_as_pydicts="strict")

    def written(changed: Sequence[dict[str, Json]]) -> bytes:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist([*map(_as_rows, changed)], table.schema), sink)
        return bytes(sink.getvalue())

    for number, row in enumerate(rows):
        kind, action = next((kind, action) for kind, action in row.items() if action is not None)
        name = f"checkpoint {kind}" + (f" {_general(action['appId'])}" if kind == "txn" else "")
        before, after = rows[:number], rows[number + 1 :]
        yield Mutation(name, "", "missing", partial(written, [*before, *after]))
        yield Mutation(name, "", "doubled", partial(written, [*rows, row]))
        for field, how, changed in of_value(action):
            yield Mutation(name, field, how, partial(written, [*before, {**row, kind: changed}, *after]))
    forged = {"appId": "lakelog.tiered", "version": 1, "lastUpdated": None}
    for app_id in (
        "lakelog.tiered",
        "lakelog.deleted",
        "lakelog.cleaned",
        "lakelog.mirrored",
        "lakelog.producer.9.seq",
    ):
        row = {**dict.fromkeys(rows[0]), "txn": {**forged, "appId": app_id}}
        yield Mutation(f"checkpoint txn {_general(app_id)}", "", "added", partial(written, [*rows, row]))


def of_value(value: Json) -> Iterator[tuple[str, str, Json]]:
    """(Field, how, the whole value with that change) for each field of a value of JSON."""
    for path, leaf in _leaves(value):
        field = ".".join(_general(str(part)) for part in path if not isinstance(part, int))
        for how, changed in _changes(leaf):
            if changed != leaf:
                yield field, how, _with(value, path, partial(_instead, changed))
        if not isinstance(path[-1], int):
            yield field, "missing", _without(value, path)


def _instead(made: Json, _: Json) -> Json:
    return made


def _leaves(value: Json, path: Path = ()) -> Iterator[tuple[Path, Json]]:
    if path and path[-1] == "stats" and isinstance(value, str):
        yield from (((*path[:-1], "stats", "json", *more), leaf) for more, leaf in _leaves(json.loads(value)))
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, (*path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, index))
    elif value is not None:
        yield path, value


def _changes(leaf: Json) -> Iterator[tuple[str, Json]]:
    if isinstance(leaf, bool):
        yield "forged", not leaf
    elif isinstance(leaf, int):
        yield "forged", leaf + 1
        yield "out of range", -5
    elif isinstance(leaf, str):
        if leaf.startswith('{"type": "struct"'):
            yield "forged", leaf.replace("binary", "string")
        elif leaf.isdecimal():
            yield "forged", str(int(leaf) + 1000)
        elif leaf:
            yield "forged", leaf[:-1] + ("0" if leaf[-1] != "0" else "1")
        yield "out of range", ""


def _with(value: Json, path: Path, change: Callable[[Json], Json]) -> Json:
    """`value` with what is at `path` changed."""
    if not path:
        return change(value)
    part, rest = path[0], path[1:]
    if part == "json":
        return json.dumps(_with(json.loads(str(value)), rest, change))
    if isinstance(value, dict):
        return {**value, part: _with(value[part], rest, change)}
    assert isinstance(value, list)
    assert isinstance(part, int)
    return [*value[:part], _with(value[part], rest, change), *value[part + 1 :]]


def _without(value: Json, path: Path) -> Json:
    def dropped(found: Json) -> Json:
        assert isinstance(found, dict)
        return {name: item for name, item in found.items() if name != path[-1]}

    return _with(value, path[:-1], dropped)


def _general(name: str) -> str:
    """A name without its numbers."""
    return "".join("N" if each.isdigit() else each for each in name).replace("NN", "N")


def _dumped(lines: Sequence[Json]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def _as_rows(row: dict[str, Json]) -> dict[str, Json]:
    """The maps of a row as Arrow takes them."""

    def fixed(value: Json, name: str = "") -> Json:
        if isinstance(value, dict):
            if name in ("tags", "partitionValues", "configuration", "options"):
                return [*value.items()]
            return {each: fixed(item, each) for each, item in value.items()}
        return value

    return {name: fixed(value) for name, value in row.items()}


_OTHERS: Sequence[Json] = ([], "text", "a huge number", "deep nesting")
_HUGE, _DEEP = "a huge number", "deep nesting"
_RAW = {_HUGE: b"9" * 5_000, _DEEP: b"[" * 50_000 + b"]" * 50_000}


def of_another_type(data: bytes) -> Iterator[Mutation]:
    """Each field of each action of a commit, an unknown one, and one of its stats have another type.

    It is a list, a text, a number of 5,000 digits, or an array that is nested 50,000 deep.
    """
    lines = [json.loads(line) for line in data.splitlines()]
    for number, line in enumerate(lines):
        ((kind, action),) = line.items()
        for field in (*action, "unknown"):
            for how in _OTHERS:
                if how == action.get(field) or (how == "text" and isinstance(action.get(field), str)):
                    continue
                changed = {kind: {**action, field: how}}
                made = partial(_raw, [*lines[:number], changed, *lines[number + 1 :]])
                yield Mutation(kind, field, str(how), made)
        if "stats" in action:
            for how in (_HUGE, _DEEP):
                stats = _raw([{**json.loads(action["stats"]), "unknown": how}]).decode().strip()
                changed = {kind: {**action, "stats": stats}}
                made = partial(_dumped, [*lines[:number], changed, *lines[number + 1 :]])
                yield Mutation(kind, "stats.unknown", how, made)


def _raw(lines: Sequence[Json]) -> bytes:
    data = _dumped(lines)
    for name, raw in _RAW.items():
        data = data.replace(b'"%b"' % name.encode(), raw)
    return data
