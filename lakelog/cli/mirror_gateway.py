"""A gateway of the root, by which a mirror sets offsets: their groups are coordinated there."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from lakelog.cli.common import security_options
from log_tables.errors import Unreachable

if TYPE_CHECKING:
    from jobs.mirror.groups import NewOffset
    from lakelog.client.client import Client
    from log_tables.cluster.cluster import Cluster

_ASKED_S = 10.0


class GatewayOffsets:
    """Sets offsets of groups through the gateway at `url`, or one on the list of the root. Thread-safe; close
    it, or use it as a context manager.
    """

    def __init__(self, cluster: "Cluster", url: str | None = None) -> None:
        self._cluster, self._url = cluster, url
        self._lock, self._open = threading.Lock(), ExitStack()
        self._clients: dict[str, Client] = {}
        self._last = ""

    def __enter__(self) -> "GatewayOffsets":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def __call__(self, group: str, mirror: str, offsets: "Sequence[NewOffset]") -> None:
        """Raises Conflict, Retriable, InvalidRequest, AccessDenied, NotFound, OutcomeUnknown."""
        from lakelog.client.request import quoted

        body = {"offsets": [_named(each) for each in offsets]}
        tried: list[str] = []
        for url in self._urls():
            try:
                path = f"/consumers/{quoted(group)}/offsets"
                self._client(url).request("PUT", path, params={"mirror": mirror}, json=body)
            except Unreachable:
                tried.append(url)
            else:
                self._last = url
                return
        which = f"no gateway answers at {', '.join(tried)}" if tried else "no gateway is listed on this root"
        raise Unreachable(
            f"{which}, so offsets of groups wait; start one with `lakelog serve`, or name one by --url"
        )

    def _urls(self) -> Iterator[str]:
        """The gateway that has answered last first."""
        if self._url:
            yield self._url
            return
        self._cluster.refresh()
        listed = [each for each in self._cluster.metadata_log.brokers.values() if not each.leaving]
        newest = sorted(listed, key=lambda each: (each.url != self._last, -each.since_ms))
        yield from (each.url for each in newest)

    def _client(self, url: str) -> "Client":
        from lakelog.client.client import Client

        with self._lock:
            if url not in self._clients:
                client = Client(url, timeout_s=_ASKED_S, **security_options())
                self._clients[url] = self._open.enter_context(client)
            return self._clients[url]


def _named(each: "NewOffset") -> dict[str, Any]:
    before = {} if each.before is None else {"before": each.before}
    named = {"topic": each.topic, "partition": each.partition, "offset": each.offset}
    return {**named, "metadata": each.metadata, **before}
