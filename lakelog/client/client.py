"""A gateway's HTTP interface for Python programs: topics, offsets, reading by offset, groups."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import httpx

from lakelog.client import DEFAULT_URL
from lakelog.client.refusal import refusal
from lakelog.client.retry import retry
from log_tables import errors
from log_tables.clock import Clock, SystemClock
from log_tables.errors import InvalidArgument, LakelogError, Unreachable
from log_tables.limits import MIB
from log_tables.topic_partition import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from log_tables.record import Record

ARROW = "application/vnd.apache.arrow.stream"

READ_BYTES = 16 * MIB
"""About how much one request of `read` brings: what it holds in memory."""

FOLLOW_MS = 10_000
"""How long one request of `read(follow=True)` waits for a record."""

_RETRIED_S = 30.0
"""How long a request that the gateway asks to repeat is repeated."""

_CONNECT_TIMEOUT_S = 5.0
_NOT_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.InvalidURL,
    httpx.UnsupportedProtocol,
)


OffsetsOf = Mapping[TopicPartition, int] | Mapping[tuple[str, int], int]
"""An offset for each of some partitions."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """The offsets of a partition: `end` is the offset that the next record gets."""

    beginning: int
    end: int
    at: int | None = None


@dataclass(frozen=True, slots=True)
class Fetched:
    """Records from an offset on (RECORD_SCHEMA), where to go on, and what the partition held."""

    records: "pa.Table"
    next_offset: int
    log_start_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class Lag:
    """How far behind a group is: in records from the log start on, in seconds since the first of them came,
    in bytes of storage. `owner` is the member that has the partition, empty when nobody has.
    """

    topic: str
    partition: int
    committed: int
    log_end_offset: int
    lag: int
    lag_seconds: float
    lag_bytes: int
    owner: str


class Client:
    """A gateway at `url`. Thread-safe; close it, or use it as a context manager.

    Methods raise the errors of log_tables.errors that the gateway names, Unreachable when none answers, and
    OutcomeUnknown when a request that changes something was sent and its answer did not come. A request that
    the gateway asks to repeat is repeated for up to 30 s. `transport` replaces the network, as httpx has it.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        timeout_s: float = 60.0,
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.url = _checked_url(url)
        self._clock = clock or SystemClock()
        self.timeout_s = timeout_s
        self._http = httpx.Client(base_url=self.url, transport=transport)
        self._cluster = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def wait(self, timeout_s: float) -> None:
        """Return when a gateway answers. Raises Unreachable when none does for `timeout_s`."""
        retry(
            lambda: self.request("GET", "/health"),
            lambda error: isinstance(error, Unreachable),
            timeout_s,
            self._clock,
        )

    def topics(self) -> list[str]:
        """The names of all topics, ordered."""
        names: list[str] = self._call("GET", "/topics").json()
        return names

    def topic(self, name: str) -> dict[str, Any]:
        """`name`, `configs` (every setting) and `partitions` of a topic. Raises UnknownTopic."""
        found: dict[str, Any] = self._call("GET", f"/topics/{quoted(name)}").json()
        return found

    def create_topic(
        self, name: str, partitions: int | None = None, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic. Raises InvalidRequest for a name that is taken or not allowed, or a bad setting."""
        body: dict[str, Any] = {
            "topic_name": name,
            "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
        }
        if partitions is not None:
            body["partitions_count"] = partitions
        self._call("POST", f"{self._cluster_path()}/topics", json=body)

    def alter_topic(self, name: str, configs: Mapping[str, str | None]) -> None:
        """Set settings; None puts one back to its default. Raises UnknownTopic, InvalidRequest."""
        data = [
            {"name": key, "operation": "DELETE"} if value is None else {"name": key, "value": value}
            for key, value in configs.items()
        ]
        path = f"{self._cluster_path()}/topics/{quoted(name)}/configs:alter"
        self._call("POST", path, json={"data": data})

    def add_partitions(self, name: str, count: int) -> None:
        """Grow a topic to `count` partitions in all. Raises UnknownTopic, InvalidRequest."""
        path = f"{self._cluster_path()}/topics/{quoted(name)}"
        self._call("PATCH", path, json={"partitions_count": count})

    def brokers(self) -> list[dict[str, Any]]:
        """The gateways on the root: `broker`, `url`, `since` (ms), `alive`, `leads` (topic: partitions)."""
        names = ("url", "since", "alive", "leads")
        listed = self._list("brokers")
        return [{"broker": each["broker_id"], **{name: each[name] for name in names}} for each in listed]

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises UnknownTopic."""
        self._call("DELETE", f"{self._cluster_path()}/topics/{quoted(name)}")

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has. Raises UnknownTopic."""
        return len(self.topic(topic)["partitions"])

    def offsets(self, topic: str, partition: int, timestamp_ms: int | None = None) -> Offsets:
        """First and next offset; with `timestamp_ms` also the earliest offset of that time or later."""
        query = {} if timestamp_ms is None else {"timestamp": timestamp_ms}
        found = self._call("GET", _partition(topic, partition, "offsets"), params=query).json()
        return Offsets(found["beginning_offset"], found["end_offset"], found.get("offset"))

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """Delete the records below offset `before`; returns the new log start offset."""
        path = _partition(topic, partition, "records")
        return int(self._call("DELETE", path, params={"before": before}).json()["log_start_offset"])

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int | str = "earliest",
        *,
        timeout_ms: int = 0,
        max_bytes: int | None = None,
    ) -> Fetched:
        """Records from `offset` (a number, earliest or latest) on, as Arrow; waits `timeout_ms` for one.

        Raises UnknownTopic, UnknownPartition, OffsetOutOfRange.
        """
        return self._fetch(topic, partition, offset, timeout_ms, max_bytes, patient=False)

    def _fetch(
        self,
        topic: str,
        partition: int,
        offset: int | str,
        timeout_ms: int,
        max_bytes: int | None,
        *,
        patient: bool,
    ) -> Fetched:
        query: dict[str, str | int] = {"offset": offset, "timeout": timeout_ms}
        if max_bytes is not None:
            query["max_bytes"] = max_bytes
        answer = self._call(
            "GET",
            _partition(topic, partition, "records"),
            patient=patient,
            timeout_s=self.timeout_s + timeout_ms / 1000,
            params=query,
            headers={"Accept": ARROW},
        )
        import pyarrow as pa  # the other methods, and so most commands, do not need it

        with pa.ipc.open_stream(pa.BufferReader(answer.content)) as reader:
            records = reader.read_all()
        place = (answer.headers[name] for name in ("Next-Offset", "Log-Start-Offset", "High-Watermark"))
        return Fetched(records, *map(int, place))

    def read(
        self, topic: str, partition: int, offset: int | str = "earliest", *, follow: bool = False
    ) -> "Iterator[Record]":
        """Every record from `offset` on, in order, up to the end.

        With `follow` for ever: it waits for more, and for a gateway that is away for up to 30 s. If the
        topic is deleted and re-created, it goes on at the same offset. Raises as `fetch` does:
        OffsetOutOfRange where that topic is shorter.
        """
        from log_tables.record import to_records

        for records in self.read_tables(topic, partition, offset, follow=follow):
            yield from to_records(records)

    def read_tables(
        self, topic: str, partition: int, offset: int | str = "earliest", *, follow: bool = False
    ) -> "Iterator[pa.Table]":
        """The same as tables of RECORD_SCHEMA, about READ_BYTES each."""
        wait_ms, at_end = FOLLOW_MS if follow else 0, False
        while follow or not at_end:
            got = self._fetch(topic, partition, offset, wait_ms, READ_BYTES, patient=follow)
            if got.records.num_rows:
                yield got.records
            offset, at_end = got.next_offset, got.next_offset >= got.high_watermark

    def groups(self) -> list[dict[str, str]]:
        """`group`, `state` and `strategy` of every consumer group, ordered by group."""
        return [_group(found) for found in self._list("consumer-groups")]

    def group(self, group_id: str) -> dict[str, Any]:
        """The same of one group, and its `members`: `member` and `partitions`. Raises UnknownGroup."""
        path = f"consumer-groups/{quoted(group_id)}"
        found = self._call("GET", f"{self._cluster_path()}/{path}").json()
        members = [each["consumer_id"] for each in self._list(f"{path}/consumers")]
        owned = [{"member": each, "partitions": self.owned(group_id, each)} for each in members]
        return {**_group(found), "members": owned}

    def owned(self, group_id: str, member_id: str) -> list[TopicPartition]:
        """The partitions that a member owns. Raises UnknownGroup, UnknownMember."""
        found = self._list(f"consumer-groups/{quoted(group_id)}/consumers/{quoted(member_id)}/assignments")
        return [TopicPartition(each["topic_name"], each["partition_id"]) for each in found]

    def lags(self, group_id: str) -> list[Lag]:
        """How far behind a group is in each partition of which it has committed an offset.

        Raises UnknownGroup.
        """
        return [
            Lag(
                each["topic_name"],
                each["partition_id"],
                each["current_offset"],
                each["log_end_offset"],
                each["lag"],
                each["lag_seconds"],
                each["lag_bytes"],
                each["consumer_id"],
            )
            for each in self._list(f"consumer-groups/{quoted(group_id)}/lags")
        ]

    def group_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        """The offsets of the next records that a group reads, as committed. Raises UnknownGroup."""
        found = self._call("GET", f"/consumers/{quoted(group_id)}/offsets").json()["offsets"]
        return {TopicPartition(each["topic"], each["partition"]): each["offset"] for each in found}

    def set_offsets(self, group_id: str, offsets: OffsetsOf, force: bool = False) -> None:
        """Set the offsets of the next records that a group reads, without being one of its members.

        With `force` also while it has members, which go on from there. Raises Conflict, UnknownTopic,
        UnknownPartition, OffsetOutOfRange.
        """
        named = [{"topic": t, "partition": p, "offset": offset} for (t, p), offset in offsets.items()]
        path = f"/consumers/{quoted(group_id)}/offsets"
        self._call("PUT", path, params={"force": force}, json={"offsets": named})

    def delete_group(self, group_id: str, force: bool = False) -> None:
        """Forget a group and its offsets; with `force` also its members, and records of transactions whose
        staged file is lost. Raises UnknownGroup, Conflict.
        """
        self._call("DELETE", f"/consumers/{quoted(group_id)}", params={"force": force})

    def request(
        self, method: str, path: str, *, timeout_s: float | None = None, **options: Any
    ) -> httpx.Response:
        """One request, not repeated: the caller decides what a repeat means. `options` are httpx's.

        Raises as every method does.
        """
        wait_s = self.timeout_s if timeout_s is None else timeout_s
        timeout = httpx.Timeout(wait_s, connect=min(wait_s, _CONNECT_TIMEOUT_S))
        try:
            answer = self._http.request(method, path, timeout=timeout, **options)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            failure: LakelogError | None = self._no_answer(method, error)
        else:
            failure = None if answer.is_success else refusal(answer)
        if failure is not None:
            # Raised here it has no context, which would keep this frame and the body as long as it lives.
            raise failure
        return answer

    def post(
        self, path: str, content: bytes, headers: Mapping[str, str], timeout_s: float | None = None
    ) -> httpx.Response:
        """The same for a POST."""
        return self.request("POST", path, timeout_s=timeout_s, content=content, headers=dict(headers))

    def _list(self, path: str) -> list[dict[str, Any]]:
        """The items of a v3 collection."""
        found: list[dict[str, Any]] = self._call("GET", f"{self._cluster_path()}/{path}").json()["data"]
        return found

    def _cluster_path(self) -> str:
        if not self._cluster:
            self._cluster = self._call("GET", "/v3/clusters").json()["data"][0]["cluster_id"]
        return f"/v3/clusters/{self._cluster}"

    def _call(self, method: str, path: str, *, patient: bool = False, **options: Any) -> httpx.Response:
        """Repeats what the gateway asks to repeat; if `patient`, also while no gateway answers."""

        def may_repeat(error: LakelogError) -> bool:
            return isinstance(error, errors.Retriable) and (patient or not isinstance(error, Unreachable))

        return retry(lambda: self.request(method, path, **options), may_repeat, _RETRIED_S, self._clock)

    def _no_answer(self, method: str, error: Exception) -> LakelogError:
        said = str(error) or type(error).__name__
        if isinstance(error, _NOT_SENT):
            return Unreachable(
                f"no gateway answers at {self.url} ({said}); start one with lakelog serve, or name its url"
            )
        if method == "GET":
            return Unreachable(f"no gateway answers at {self.url} to the end ({said}); ask again")
        return errors.OutcomeUnknown(
            f"the gateway at {self.url} did not answer ({said}), so it may have done what was asked or not; "
            "look before repeating"
        )


def _checked_url(url: str) -> str:
    """`url` without a slash at its end. Raises InvalidArgument for what is no URL of a gateway."""
    try:
        parsed = httpx.URL(url)
        usable = parsed.scheme in ("http", "https") and parsed.host
    except (httpx.InvalidURL, UnicodeError):
        usable = False
    if not usable:
        raise InvalidArgument(f"{url!r} is not the URL of a gateway; write it as http://127.0.0.1:8082")
    return url.rstrip("/")


def _group(found: Mapping[str, Any]) -> dict[str, str]:
    return {
        "group": found["consumer_group_id"],
        "state": found["state"],
        "strategy": found["partition_assignor"],
    }


def _partition(topic: str, partition: int, what: str) -> str:
    return f"/topics/{quoted(topic)}/partitions/{partition}/{what}"


def quoted(name: str) -> str:
    """`name` as a part of a URL's path. Raises InvalidArgument for one that leads to another path, or that
    is no Unicode text.
    """
    if "/" in name or name in ("", ".", ".."):
        raise InvalidArgument(f"nothing can be called {name[:40]!r}; use a name that has no slash")
    try:
        return quote(name, safe="")
    except UnicodeEncodeError:
        raise InvalidArgument(f"nothing can be called {name[:40]!r}, which is no Unicode text") from None
