"""A topic that is compacted by key, and what compaction may not remove."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import httpx

from tests.kit.asking import Answer
from tests.kit.clients import Client, IdempotentProducer, Task
from tests.kit.consumers import JSON
from tests.kit.history import At, Fetch, Operation, Placed, Row, Rows, Write
from tests.kit.history_checker import Finding
from tests.simulation.scenes import Scene

KEYS = 4
DELETES_EVERY = 7
"""Of so many records one is a tombstone, and one has no key."""


class Kind(StrEnum):
    LOST = "what no newer record of its key replaces is gone"
    FOREIGN = "a record is there that nobody has sent so, or elsewhere than it was acknowledged"
    DOUBLED = "a record is there more than once"
    RISEN = "a key that was deleted has an older record again"


def sent(name: str) -> tuple[str | None, str | None]:
    """The key and the value that are sent for a value of the history."""
    number = int(name.rsplit("-", 1)[1])
    if number % DELETES_EVERY == 1:
        return None, name
    return f"k{number % KEYS}", None if number % DELETES_EVERY == 2 else name


class KeyedProducer(IdempotentProducer):
    """Sends records with keys, tombstones, and records without a key."""

    def _send(self, stamp: Mapping[str, str]) -> Answer:
        topic, partition = self.task.at
        records = [{"key": key, "value": value} for key, value in map(sent, self._values)]
        path = f"/topics/{topic}/partitions/{partition}"
        return self.gateways.ask("POST", path, {"records": records}, {"Content-Type": JSON, **stamp})


@dataclass(frozen=True, slots=True)
class _There:
    offset: int
    key: str | None
    value: str | None


class Keyed(Scene):
    """Its producers overwrite one another's keys."""

    topic = "keyed"
    kinds: ClassVar[Mapping[str, type[Client]]] = {**Scene.kinds, "produce": KeyedProducer}
    configs: ClassVar[Mapping[str, str]] = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "3600000",
    }

    @property
    def tasks(self) -> Sequence[Task]:
        at = At(self.topic, 0)
        return (
            Task("produce", "keyed", at),
            Task("produce", "keyed too", at),
            Task("fetch", "fetcher of keys", at),
        )

    def read(self, client: httpx.Client) -> None:
        path, following = f"/topics/{self.topic}/partitions/0/records", 0
        self.there: list[_There] = []
        while True:
            answer = client.get(path, params={"offset": following})
            assert answer.status_code == 200, answer.text
            self.there += [_There(each["offset"], each["key"], each["value"]) for each in answer.json()]
            following = int(answer.headers["Next-Offset"])
            if following >= int(answer.headers["High-Watermark"]):
                return

    def findings(self, operations: Sequence[Operation]) -> Sequence[Finding]:
        return [*judged(self.there, operations)]


def judged(there: Sequence[_There], operations: Sequence[Operation]) -> Iterator[Finding]:
    """Findings about what is `there` when nothing is under way any more."""
    told, perhaps = _told(operations)
    held = {each.offset: each for each in there}
    yield from _strangers(there, told, perhaps)
    newest: dict[str, int] = {}
    for each in there:
        if each.key is not None:
            newest[each.key] = each.offset
    deleted = {sent(name)[0] for name in perhaps if sent(name)[1] is None}
    last = {sent(name)[0]: offset for offset, name in sorted(told.items())}
    for offset, name in told.items():
        key, value = sent(name)
        if offset in held or (key is not None and newest.get(key, -1) > offset):
            continue
        if key is None or (value is not None and last[key] == offset and key not in deleted):
            yield Finding(Kind.LOST, f"{name!r} of key {key}, acknowledged at {offset}")
    for key, offset in last.items():
        if key is not None and newest.get(key, offset) < offset:
            yield Finding(Kind.RISEN, f"key {key} has {held[newest[key]]}, and {told[offset]!r} is newer")
    yield from _misread(operations, told, {sent(name)[0] for name in perhaps})


def _told(operations: Sequence[Operation]) -> tuple[dict[int, str], set[str]]:
    """All that was acknowledged, by offset; and what may be there, or was told without its offset."""
    told: dict[int, str] = {}
    perhaps: set[str] = set()
    for op in operations:
        if isinstance(op.asked, Write):
            values = [value for part in op.asked.parts for value in part.values]
            offsets = op.answer.offsets if isinstance(op.answer, Placed) else (None,) * len(values)
            for value, offset in zip(values, offsets, strict=True):
                if offset is None:
                    perhaps.add(value)
                else:
                    told[offset] = value
    return told, perhaps


def _strangers(there: Sequence[_There], told: Mapping[int, str], perhaps: set[str]) -> Iterator[Finding]:
    seen: set[str] = set()
    for each in there:
        name = told.get(each.offset)
        if name is not None:
            if sent(name) != (each.key, each.value):
                yield Finding(Kind.FOREIGN, f"{each}, where {name!r} was acknowledged")
        elif not any(sent(one) == (each.key, each.value) for one in perhaps):
            yield Finding(Kind.FOREIGN, f"{each}")
        if each.value is not None and each.value in seen:
            yield Finding(Kind.DOUBLED, f"{each}")
        seen |= {each.value} if each.value is not None else set()


def _misread(
    operations: Sequence[Operation], told: Mapping[int, str], unsure: set[str | None]
) -> Iterator[Finding]:
    """Findings about reads: other records than were acknowledged there, and the newest of a key passed over.

    Keys that are `unsure` may have newer records.
    """
    acknowledged = {
        offset: op.end
        for op in operations
        if isinstance(op.asked, Write) and isinstance(op.answer, Placed)
        for offset in op.answer.offsets
        if offset is not None
    }
    last = {sent(name)[0]: offset for offset, name in sorted(told.items())}
    for op in operations:
        if not isinstance(op.asked, Fetch) or not isinstance(op.answer, Rows):
            continue
        rows: dict[int, Row] = {row.offset: row for row in op.answer.rows}
        for offset, row in rows.items():
            if offset in told and row.value != sent(told[offset])[1]:
                yield Finding(Kind.FOREIGN, f"{row} was read, where {told[offset]!r} was acknowledged")
        for key, offset in last.items():
            if key in unsure:
                continue
            passed = op.asked.offset <= offset < (op.answer.next_offset or 0) and offset not in rows
            if passed and sent(told[offset])[1] is not None and acknowledged[offset] < op.begin:
                yield Finding(
                    Kind.LOST, f"a fetch from {op.asked.offset} on passed over {offset} of key {key}"
                )
