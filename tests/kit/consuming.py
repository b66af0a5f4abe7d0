"""Helpers for tests of lakelog.Consumer: its records, commits and callbacks, and a network that fails."""

from collections.abc import Callable

import httpx
import pyarrow as pa

from lakelog import Client, Consumer
from log_tables.errors import UnknownGroup
from log_tables.topic_partition import TopicPartition
from tests.kit.support import wait_until

Make = Callable[..., Consumer]
Told = list[tuple[str, list[TopicPartition]]]


def telling(told: Told) -> dict[str, Callable[[list[TopicPartition]], None]]:
    """Callbacks that write down what they are told."""

    def callback(what: str) -> Callable[[list[TopicPartition]], None]:
        return lambda partitions: told.append((what, partitions))

    return {f"on_{what}": callback(what) for what in ("assigned", "revoked", "lost")}


def offsets(table: pa.Table) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in table.select(["partition", "offset"]).to_pylist():
        found.setdefault(row["partition"], []).append(row["offset"])
    return found


def polled(consumer: Consumer, count: int) -> dict[int, list[int]]:
    """The offsets of `count` records, by partition, in as many polls as it takes."""
    tables: list[pa.Table] = []

    def enough() -> bool:
        tables.append(consumer.poll(200))
        return sum(len(table) for table in tables) >= count

    wait_until(enough, f"{count} records")
    return offsets(pa.concat_tables(tables))


def committed(client: Client, group: str) -> dict[int, int]:
    return {at.partition: offset for at, offset in client.group_offsets(group).items()}


def members(client: Client, group: str) -> list[str]:
    """The names of a group's members; none of a group that is not known (any more)."""
    try:
        return [each["member"] for each in client.group(group)["members"]]
    except UnknownGroup:
        return []


class Losing(httpx.HTTPTransport):
    """The network, which loses the answers of some requests, and does not take the next `cut` at all.

    A lost answer is `error`, by default a connection that was reset.
    """

    def __init__(self, error: BaseException | None = None) -> None:
        super().__init__()
        self._error = error or httpx.ReadError("the connection was reset")
        self.lost: set[int] = set()
        self.kind, self.count, self.cut = "/records", 0, 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self.cut and request.url.path.endswith(self.kind):
            self.cut -= 1
            raise httpx.ConnectError("the connection was refused")
        answer = super().handle_request(request)
        if request.url.path.endswith(self.kind):
            self.count += 1
            if self.count in self.lost:
                answer.read()
                raise self._error
        return answer
