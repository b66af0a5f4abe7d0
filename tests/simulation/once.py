"""A topic of producers whose requests count once: by an Idempotency-Key, or by the offset that they
expect.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import ClassVar

import httpx
import msgspec

from log_tables.key_hash import MURMUR3, partition_for_key
from tests.kit.asking import Answer
from tests.kit.clients import BATCH, OUT_OF_RANGE, Client, Fetcher, Task, settle
from tests.kit.consumers import JSON
from tests.kit.history import At, Doing, Operation, Outcome, Part, Placed, Row, Write
from tests.kit.history_checker import Finding, Log
from tests.kit.workload import read_partition
from tests.simulation.scenes import CheckedScene

REMEMBERED_S = 15 * 60
"""An Idempotency-Key is remembered for so long, at least."""

ENDS_ELSEWHERE = 41201
"""The log does not end at Expected-Offset."""

BETWEEN_S = 0.4
"""Between two requests of a producer, at most."""

PARTITIONS = 2
KEYS = ("a", "b", "c", "d")


def partition_of(key: str) -> int:
    """The partition of a value with this key: the key is the JSON that stands in the value."""
    return partition_for_key(json.dumps(key).encode(), PARTITIONS, MURMUR3)


class OnceProducer(Client):
    """Repeats each request of bare values under its Idempotency-Key until it is acknowledged, or the key may
    have been forgotten. What it sent for longer than that is in `late`.
    """

    _sent = 0

    def step(self) -> None:
        self._stop.wait(self.gateways.clock.random() * BETWEEN_S)
        started, first = self.gateways.clock.boottime(), self._sent
        self._sent += 2 * BATCH
        values = {f"{self.task.name}-{at}": KEYS[at % len(KEYS)] for at in range(first, self._sent)}
        body = [{"k": key, "text": text} for text, key in values.items()]
        of: dict[int, list[str]] = {}
        for text, key in values.items():
            of.setdefault(partition_of(key), []).append(text)
        with ExitStack() as stack:
            # All are one request, and each partition has its part of it or not, whatever the others have.
            doings = {
                number: stack.enter_context(self._history.doing(self._write(number, texts)))
                for number, texts in of.items()
            }
            while not (answer := self._ask(body, f"{self.task.name}-{first}")).ok:
                if self._stop.is_set() or self.gateways.clock.boottime() - started > REMEMBERED_S / 2:
                    return
                self._pause()
            _place(doings, of, answer)

    def _write(self, number: int, texts: Sequence[str]) -> Write:
        return Write(self.task.name, (Part(At(self.task.at.topic, number), tuple(texts)),))

    def _ask(self, body: Sequence[Mapping[str, str]], key: str) -> Answer:
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        return self.gateways.ask("POST", f"/topics/{self.task.at.topic}/values?key=/k", body, headers)


def _place(doings: Mapping[int, Doing], of: Mapping[int, Sequence[str]], answer: Answer) -> None:
    told: dict[int, list[int | None]] = {number: [] for number in of}
    for each in answer.json()["offsets"]:
        base, count = each["base_offset"], each["count"]
        told[each["partition"]] += [None] * count if base is None else range(base, base + count)
    for number, doing in doings.items():
        assert len(told[number]) == len(of[number]), answer.json()
        doing.ok(Placed(tuple(told[number])))


class ConditionalProducer(Client):
    """Appends where it has seen that the log ends, and repeats a request until it knows what became of it."""

    _sent, _end = 0, 0
    _is_lucky = True

    def step(self) -> None:
        if self._is_lucky:  # else it tries again at once, before others do
            self._stop.wait(self.gateways.clock.random() * BETWEEN_S)
        values = tuple(f"{self.task.name}-{self._sent + index}" for index in range(BATCH))
        self._sent += BATCH
        is_certain = True
        with self._history.doing(Write(self.task.name, (Part(self.task.at, values),))) as doing:
            while not (answer := self._ask(values)).ok:
                if answer.code == ENDS_ELSEWHERE and (is_certain or self._is_settled(values, doing)):
                    break
                is_certain = is_certain and answer.outcome is Outcome.FAILED
                if self._stop.is_set():
                    return
                self._pause()
            if answer.ok:
                offsets = [each["offset"] for each in answer.json()["offsets"]]
                assert offsets == [*range(self._end, self._end + BATCH)], f"{offsets}, not {self._end}"
                settle(doing, answer)
            elif is_certain:
                doing.failed()
        self._is_lucky = answer.ok
        self._end = self._end + BATCH if answer.ok else int(answer.json()["log_end_offset"])

    def _ask(self, values: Sequence[str]) -> Answer:
        topic, partition = self.task.at
        records = [{"value": {"text": text}} for text in values]
        headers = {"Content-Type": JSON, "Expected-Offset": str(self._end)}
        path = f"/topics/{topic}/partitions/{partition}"
        return self.gateways.ask("POST", path, {"records": records}, headers, (ENDS_ELSEWHERE,))

    def _is_settled(self, values: Sequence[str], doing: Doing) -> bool:
        """Whether it is told by what is now where the values should be: the log never ends there again."""
        topic, partition = self.task.at
        path = f"/topics/{topic}/partitions/{partition}/records?offset={self._end}"
        answer = self.gateways.ask("GET", path, may=(OUT_OF_RANGE,))
        there = [each.value for each in texts(answer)[: len(values)]] if answer.ok else []
        if there == [*values]:
            doing.ok(Placed(tuple(range(self._end, self._end + len(values)))))
        elif there:
            doing.failed()
        return bool(there)


def texts(answer: Answer) -> tuple[Row, ...]:
    """The rows of an answer whose values are objects with a text."""
    return tuple(
        Row(At(each["topic"], each["partition"]), each["offset"], each["value"]["text"])
        for each in answer.json()
    )


class TextFetcher(Fetcher):
    """A fetcher of such values."""

    def _rows(self, answer: Answer) -> tuple[Row, ...]:
        return texts(answer)


class Once(CheckedScene):
    """Whatever is repeated, and through whichever gateway, each value is there once and in order."""

    topic = "once"
    partitions = begins_with = PARTITIONS
    kinds: ClassVar[Mapping[str, type[Client]]] = {
        **CheckedScene.kinds,
        "produce once": OnceProducer,
        "produce conditionally": ConditionalProducer,
        "fetch": TextFetcher,
    }

    @property
    def tasks(self) -> Sequence[Task]:
        here = At(self.topic, 0)
        return (
            Task("produce once", "once", here),
            Task("produce conditionally", "conditional", here),
            Task("produce conditionally", "conditional too", here),
            Task("fetch", "fetcher of once", here),
        )

    def read(self, client: httpx.Client) -> None:
        found = {}
        for number in range(PARTITIONS):
            at = At(self.topic, number)
            _, held = read_partition(client, at)
            found[at] = {offset: msgspec.convert(value, _Text).text for offset, value in held.items()}
        self.log = Log(found, {})

    def findings(self, operations: Sequence[Operation]) -> Sequence[Finding]:
        """Findings, but for values whose requests were on their way until their key was forgotten."""
        late = [
            value
            for op in operations
            if isinstance(op.asked, Write) and op.end - op.begin > REMEMBERED_S
            for part in op.asked.parts
            for value in part.values
        ]
        found = super().findings(operations)
        return [each for each in found if not any(repr(value) in each.text for value in late)]


class _Text(msgspec.Struct):
    text: str
