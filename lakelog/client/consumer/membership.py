"""A consumer instance over HTTP: the requests of one member of a group, each sent once."""

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

import httpx
import pyarrow as pa

from lakelog.client.calls import Calls
from lakelog.client.request import ARROW, Call, quoted
from log_tables.errors import MemberExists, OutcomeUnknown, UnknownGroup
from log_tables.topic_partition import TopicPartition

BEAT_S_MAX = 5.0
"""How long a heartbeat waits for its answer."""


class Membership:
    """The member `member_id` of a group. Every method is a call, and may raise UnknownMember, Unreachable,
    OutcomeUnknown and other Retriable; each may be repeated after these.
    """

    def __init__(
        self, calls: Calls, group_id: str, member_id: str, config: Mapping[str, Any], *, is_unique: bool
    ) -> None:
        """`config` is that of the instance, by the names of the wire. `is_unique`: no other has the name."""
        self._calls, self._group_id, self._member_id, self._config = calls, group_id, member_id, config
        self._is_unique = is_unique
        self._path = f"/consumers/{quoted(group_id)}/instances/{quote(member_id, safe='')}"
        self._perhaps_created = False

    def create(self) -> Call[None]:
        """Join the group. Raises MemberExists when another has the name, InvalidConsumer."""
        body = {"name": self._member_id, "format": "arrow", **self._config}
        try:
            yield from self._calls.request("POST", f"/consumers/{quoted(self._group_id)}", json=body)
        except (OutcomeUnknown, GeneratorExit):  # GeneratorExit: nobody waits for the answer any longer
            self._perhaps_created = True
            raise
        except MemberExists:
            if not self._perhaps_created:
                raise
        self._perhaps_created = False

    @property
    def may_exist(self) -> bool:
        """Whether the gateway may know the member without having said so. A name that is not unique may be
        another's, and is left alone.
        """
        return self._perhaps_created and self._is_unique

    def delete(self) -> Call[None]:
        """Leave the group."""
        yield from self._send("DELETE", "")

    def heartbeat(self) -> Call[None]:
        """Keep the membership alive."""
        # A request without a body says what it is, too: a page in a browser could send one that does not.
        headers = {"Content-Type": "application/json"}
        yield from self._calls.request(
            "POST", f"{self._path}/heartbeat", timeout_s=BEAT_S_MAX, headers=headers
        )

    def subscribe(self, topics: Iterable[str], pattern: str) -> Call[None]:
        """Share `topics`, or those that `pattern` matches. Raises InvalidRequest."""
        body = {"topic_pattern": pattern} if pattern else {"topics": sorted(topics)}
        yield from self._send("POST", "/subscription", json=body)

    def subscription(self) -> Call[frozenset[str]]:
        """The topics; of a pattern those that it matches now."""
        answer = yield from self._send("GET", "/subscription")
        return frozenset(answer.json()["topics"])

    def assign(self, partitions: Iterable[TopicPartition]) -> Call[None]:
        """Own partitions without sharing them. Raises UnknownTopic, UnknownPartition."""
        yield from self._send("POST", "/assignments", json=_named(partitions))

    def assignment(self) -> Call[tuple[set[TopicPartition], int]]:
        """The partitions that it owns and keeps, and the generation of its last change."""
        answer = yield from self._send("GET", "/assignments")
        return _topic_partitions(answer.json()["partitions"]), int(answer.headers["Generation"])

    def owned(self) -> Call[set[TopicPartition]]:
        """All partitions that it owns, also those that it has to give up."""
        try:
            return set((yield from self._calls.owned(self._group_id, self._member_id)))
        except UnknownGroup:
            return set()

    def end(self, at: TopicPartition) -> Call[int]:
        """The offset that the next record of a partition gets. Raises UnknownTopic, UnknownPartition."""
        offsets = yield from self._calls.offsets(*at)
        return offsets.end

    def records(
        self, generation: int | None, timeout_ms: int, max_bytes: int | None
    ) -> Call[tuple[pa.Table, int]]:
        """The result of a poll, and the generation that the gateway knows."""
        query: dict[str, int] = {"timeout": timeout_ms}
        if generation is not None:
            query["generation"] = generation
        if max_bytes is not None:
            query["max_bytes"] = max_bytes
        wait_s = self._calls.timeout_s + timeout_ms / 1000
        answer = yield from self._send(
            "GET", "/records", timeout_s=wait_s, params=query, headers={"Accept": ARROW}
        )
        with pa.ipc.open_stream(pa.BufferReader(answer.content)) as reader:
            return reader.read_all(), int(answer.headers["Generation"])

    def commit(self, offsets: Mapping[TopicPartition, int]) -> Call[None]:
        """Commit the offsets of the next records. Raises Conflict for what is another's."""
        # The wire has the last record that was processed.
        yield from self._send(
            "POST", "/offsets", json=_offsets({at: offset - 1 for at, offset in offsets.items()})
        )

    def transact(self, body: bytes, key: str) -> Call[tuple[int, list[tuple[str, int, int | None, int]]]]:
        """Commit a transaction by its retry key; its number, and topic, partition, first offset and count of
        its records. Raises Conflict, NotFound, InvalidRequest: then nothing of it is or will be there; and
        AccessDenied: then this request has done nothing.
        """
        headers = {"Content-Type": ARROW, "Idempotency-Key": key}
        answer = yield from self._send("POST", "/transactions", content=body, headers=headers)
        found = answer.json()
        sent = [(p["topic"], p["partition"], p["base_offset"], p["count"]) for p in found["offsets"]]
        return found["transaction"], sent

    def committed(self, partitions: Iterable[TopicPartition]) -> Call[dict[TopicPartition, int]]:
        """The offsets of the next records as the group has committed them, where it has."""
        answer = yield from self._send("GET", "/offsets", json=_named(partitions))
        found = answer.json()["offsets"]
        return {TopicPartition(each["topic"], each["partition"]): each["offset"] for each in found}

    def seek(self, positions: Mapping[TopicPartition, int]) -> Call[None]:
        """Go on from these. Raises Conflict for what it does not own."""
        yield from self._send("POST", "/positions", json=_offsets(positions))

    def seek_to_beginning(self, partitions: Iterable[TopicPartition]) -> Call[None]:
        """Go on from the first records that there are. Raises Conflict for what it does not own."""
        yield from self._send("POST", "/positions/beginning", json=_named(partitions))

    def _send(self, method: str, path: str, **options: Any) -> Call[httpx.Response]:
        return self._calls.request(method, self._path + path, **options)


def _named(partitions: Iterable[TopicPartition]) -> dict[str, Any]:
    return {"partitions": [{"topic": topic, "partition": p} for topic, p in sorted(partitions)]}


def _offsets(offsets: Mapping[TopicPartition, int]) -> dict[str, Any]:
    named = [
        {"topic": topic, "partition": p, "offset": offset} for (topic, p), offset in sorted(offsets.items())
    ]
    return {"offsets": named}


def _topic_partitions(listed: Iterable[Mapping[str, Any]]) -> set[TopicPartition]:
    return {TopicPartition(each["topic"], each["partition"]) for each in listed}
