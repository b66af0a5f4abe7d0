"""The questions to a gateway, each once for both faces: topics, offsets, records, groups."""

import json
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import httpx

from lakelog.client.request import ARROW, Call, Request, Retry, error_of, quoted
from log_tables import errors
from log_tables.clock import Clock
from log_tables.errors import LakelogError, OutcomeUnknown, Unreachable
from log_tables.limits import MIB
from log_tables.schemas.schema import Schema, SchemaId, SchemaKind
from log_tables.topic_partition import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

READ_BYTES = 8 * MIB
"""About how much one request of `read` brings. Two are in memory: that whose rows are taken, and the next."""

FOLLOW_MS = 10_000
"""How long one request of `read(follow=True)` waits for a record."""

_RETRIED_S = 30.0
"""How long a request that the gateway asks to repeat is repeated."""

_ACL = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
"""The fields of an ACL in version 3."""

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


@dataclass(frozen=True, slots=True)
class ColumnFit:
    """How values of a schema fit a declared column: whether it has the field, and why not all fit."""

    column: str
    in_schema: bool
    reason: str | None


@dataclass(frozen=True, slots=True)
class TopicSchema:
    """A version of a subject, and how it fits a topic: the columns that are declared and that it proposes,
    together as `value.columns`; the declared ones; the fields that none of them has.
    """

    subject: str
    version: int
    id: int
    schema: Schema
    format: str
    value_columns: str
    columns: Sequence[ColumnFit]
    fields_without_column: Sequence[str]


def _schema(found: Mapping[str, Any]) -> Schema:
    """A schema as version 2 has it."""
    references = tuple((each["name"], each["text"]) for each in found["references"])
    return Schema(SchemaKind(found["type"]), found["text"], references)


class Calls:
    """The calls of one client. Their docstrings are those of its methods."""

    def __init__(self, timeout_s: float, clock: Clock) -> None:
        self.timeout_s, self._clock = timeout_s, clock
        self._cluster = ""

    def wait(self, timeout_s: float) -> Call[None]:
        """Return when a gateway answers. Raises Unreachable when none does for `timeout_s`."""
        away = Retry(lambda error: isinstance(error, Unreachable), timeout_s, self._clock)
        yield from self._repeated(Request("GET", "/health", self.timeout_s, {}), away)

    def topics(self) -> Call[list[str]]:
        """The names of all topics, ordered."""
        names: list[str] = yield from self._json("GET", "/topics")
        return names

    def topic(self, name: str) -> Call[dict[str, Any]]:
        """`name`, `configs` (every setting) and `partitions` of a topic. Raises UnknownTopic.

        `configs` is empty for a principal that may not DESCRIBE_CONFIGS.
        """
        found: dict[str, Any] = yield from self._json("GET", f"/topics/{quoted(name)}")
        return found

    def topic_configs(self, name: str) -> Call[dict[str, str]]:
        """Every setting of a topic with its value. Raises UnknownTopic, AuthorizationFailed."""
        listed = yield from self._list(f"topics/{quoted(name)}/configs")
        return {each["name"]: each["value"] for each in listed}

    def create_topic(
        self, name: str, partitions: int | None = None, configs: Mapping[str, str] | None = None
    ) -> Call[int]:
        """Create a topic; returns how many partitions it has. Raises TopicExists, InvalidTopicName,
        InvalidConfig for a setting, PartitionsMaxReached.
        """
        body: dict[str, Any] = {
            "topic_name": name,
            "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
        }
        if partitions is not None:
            body["partitions_count"] = partitions
        created = yield from self._v3("POST", "topics", json=body)
        return int(created["partitions_count"])

    def alter_topic(self, name: str, configs: Mapping[str, str | None]) -> Call[None]:
        """Set settings; None puts one back to its default. Raises UnknownTopic, InvalidRequest."""
        data = [
            {"name": key, "operation": "DELETE"} if value is None else {"name": key, "value": value}
            for key, value in configs.items()
        ]
        yield from self._v3("POST", f"topics/{quoted(name)}/configs:alter", json={"data": data})

    def add_partitions(self, name: str, count: int) -> Call[None]:
        """Grow a topic to `count` partitions in all. Raises UnknownTopic, InvalidRequest."""
        yield from self._v3("PATCH", f"topics/{quoted(name)}", json={"partitions_count": count})

    def cluster(self) -> Call[dict[str, Any]]:
        """The `cluster_id`, and the `location` of the root; None for a principal that may not DESCRIBE it."""
        clusters = yield from self._json("GET", "/v3/clusters")
        return {name: clusters["data"][0][name] for name in ("cluster_id", "location")}

    def brokers(self) -> Call[list[dict[str, Any]]]:
        """The gateways on the root: `broker`, `url`, `rack` or None, `since` (ms), `alive`, `leads` (topic:
        partitions).
        """
        names = ("url", "rack", "since", "alive", "leads")
        listed = yield from self._list("brokers")
        return [{"broker": each["broker_id"], **{name: each[name] for name in names}} for each in listed]

    def delete_topic(self, name: str, *, topic_id: str | None = None) -> Call[None]:
        """Delete a topic, with a `topic_id` only the one that has it. Raises UnknownTopic."""
        query = {} if topic_id is None else {"id": topic_id}
        yield from self._call("DELETE", f"/topics/{quoted(name)}", params=query)

    def deletion(self, name: str) -> Call[dict[str, Any]]:
        """Look what a deletion of the topic would take: `partitions`, `records`, `bytes`, the `groups` with
        offsets in it, and for how long it could be brought back, `kept_ms`. Raises UnknownTopic.
        """
        found: dict[str, Any] = yield from self._json("GET", f"/topics/{quoted(name)}/deletion")
        return found

    def deleted_topics(self) -> Call[list[dict[str, Any]]]:
        """The deleted topics that can be brought back, by name: `topic`, `id`, `partitions`, `records`,
        `bytes`, `deleted_ms`, `until_ms` (milliseconds since 1970).
        """
        found: list[dict[str, Any]] = yield from self._json("GET", "/deleted-topics")
        return found

    def undelete_topic(
        self, name: str, *, topic_id: str | None = None, new_name: str | None = None
    ) -> Call[dict[str, Any]]:
        """Bring back the newest deleted topic of a name, or the one with `topic_id`, under `new_name` if that
        is given. Returns its `topic`, `id` and `partitions`. Raises UnknownTopic, TopicExists.
        """
        path = f"/deleted-topics/{quoted(name)}/undelete"
        body = {"id": topic_id, "topic_name": new_name}
        found: dict[str, Any] = yield from self._json("POST", path, json=body)
        return found

    def purge_topic(self, name: str, *, topic_id: str | None = None) -> Call[dict[str, Any]]:
        """Free the space of a deleted topic at once; returns what it was, as `deleted_topics`. Raises
        UnknownTopic.
        """
        query = {} if topic_id is None else {"id": topic_id}
        path = f"/deleted-topics/{quoted(name)}"
        found: dict[str, Any] = yield from self._json("DELETE", path, params=query)
        return found

    def restore_topic(
        self,
        name: str,
        *,
        version: int | None = None,
        time: str | None = None,
        partition: int | None = None,
        dry_run: bool = False,
    ) -> Call[list[dict[str, Any]]]:
        """Bring back what DeleteRecords or retention has deleted since a `version` of a partition's table, or
        a `time` (ISO 8601, or milliseconds since 1970). Returns for each partition `log_start_before`,
        `log_start`, `records` and `bytes` that come back, and how far back the log reaches: `oldest_version`,
        `oldest_ms`. Raises UnknownTopic, and Conflict where that is not possible.
        """
        state = {"version": version, "time": time, "partition": partition, "dry_run": dry_run}
        path = f"/topics/{quoted(name)}/restore"
        found: list[dict[str, Any]] = yield from self._json("POST", path, json=state)
        return found

    def schema(self, topic: str, schema_id: SchemaId) -> Call[Schema]:
        """The schema with this id, as the values of a topic name it. Raises UnknownTopic, NotFound, and
        InvalidArgument for a topic without `value.columns.schemas`.
        """
        found = yield from self._json("GET", f"/topics/{quoted(topic)}/schemas/{quoted(str(schema_id))}")
        return _schema(found)

    def topic_schema(
        self, topic: str, subject: str | None = None, version: int | None = None
    ) -> Call[TopicSchema]:
        """The newest version of a subject, or `version`, and how its values fit the columns of a topic. The
        subject is `TOPIC-value` unless given. Raises as `schema`.
        """
        asked = {"subject": subject, "version": version}
        query = urlencode({name: value for name, value in asked.items() if value is not None})
        found = yield from self._json("GET", f"/topics/{quoted(topic)}/schemas" + (query and f"?{query}"))
        checks = ((each["column"], each["in_schema"], each["reason"]) for each in found["columns"])
        return TopicSchema(
            found["subject"],
            found["version"],
            found["id"],
            _schema(found),
            found["format"],
            found["value_columns"],
            [ColumnFit(*each) for each in checks],
            found["fields_without_column"],
        )

    def partition_count(self, topic: str) -> Call[int]:
        """How many partitions a topic has. Raises UnknownTopic."""
        found = yield from self.topic(topic)
        return len(found["partitions"])

    def offsets(
        self, topic: str, partition: int, timestamp_ms: int | None = None, *, newest: int | None = None
    ) -> Call[Offsets]:
        """First and next offset; with `timestamp_ms` also the earliest offset of that time or later, with
        `newest` that from which on there are so many records, or all.
        """
        asked = {"timestamp": timestamp_ms, "newest": newest}
        query = {name: value for name, value in asked.items() if value is not None}
        found = yield from self._json("GET", _partition(topic, partition, "offsets"), params=query)
        return Offsets(found["beginning_offset"], found["end_offset"], found.get("offset"))

    def delete_records(self, topic: str, partition: int, before: int) -> Call[int]:
        """Delete the records below offset `before`; returns the new log start offset."""
        path = _partition(topic, partition, "records")
        found = yield from self._json("DELETE", path, params={"before": before})
        return int(found["log_start_offset"])

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int | str = "earliest",
        *,
        timeout_ms: int = 0,
        max_bytes: int | None = None,
    ) -> Call[Fetched]:
        """Records from `offset` (a number, earliest or latest) on, as Arrow; waits `timeout_ms` for one.

        Raises UnknownTopic, UnknownPartition, OffsetOutOfRange.
        """
        return (yield from self._fetch(topic, partition, offset, timeout_ms, max_bytes, patient=False))

    def read_on(self, topic: str, partition: int, offset: int | str, *, follow: bool) -> Call[Fetched]:
        """The next part of a read."""
        wait_ms = FOLLOW_MS if follow else 0
        return (yield from self._fetch(topic, partition, offset, wait_ms, READ_BYTES, patient=follow))

    def _fetch(
        self,
        topic: str,
        partition: int,
        offset: int | str,
        timeout_ms: int,
        max_bytes: int | None,
        *,
        patient: bool,
    ) -> Call[Fetched]:
        query: dict[str, str | int] = {"offset": offset, "timeout": timeout_ms}
        if max_bytes is not None:
            query["max_bytes"] = max_bytes
        path, wait_s = _partition(topic, partition, "records"), self.timeout_s + timeout_ms / 1000
        request = Request("GET", path, wait_s, {"params": query, "headers": {"Accept": ARROW}})
        answer = yield from self._repeated(request, self._asked(patient=patient))
        import pyarrow as pa  # the other methods, and so most commands, do not need it

        with pa.ipc.open_stream(pa.BufferReader(answer.content)) as reader:
            records = reader.read_all()
        place = (answer.headers[name] for name in ("Next-Offset", "Log-Start-Offset", "High-Watermark"))
        return Fetched(records, *map(int, place))

    def groups(self) -> Call[list[dict[str, str]]]:
        """`group`, `state`, `strategy` and `protocol_type` of every consumer group, ordered by group."""
        listed = yield from self._list("consumer-groups")
        return [_group(found) for found in listed]

    def group(self, group_id: str) -> Call[dict[str, Any]]:
        """Describe one group with its `members`: `member`, `client_id`, `host` and `partitions`. Raises
        UnknownGroup.
        """
        path, members = f"consumer-groups/{quoted(group_id)}", []
        found = yield from self._v3("GET", path)
        listed = yield from self._list(f"{path}/consumers")
        for each in listed:
            owned = yield from self.owned(group_id, each["consumer_id"])
            own = {"client_id": each["client_id"], "host": each["host"]}
            members.append({"member": each["consumer_id"], **own, "partitions": owned})
        return {**_group(found), "members": members}

    def owned(self, group_id: str, member_id: str) -> Call[list[TopicPartition]]:
        """The partitions that a member owns. Raises UnknownGroup, UnknownMember."""
        path = f"consumer-groups/{quoted(group_id)}/consumers/{quoted(member_id)}/assignments"
        found = yield from self._list(path)
        return [TopicPartition(each["topic_name"], each["partition_id"]) for each in found]

    def lags(self, group_id: str) -> Call[list[Lag]]:
        """How far behind a group is in each partition of which it has committed an offset.

        Raises UnknownGroup.
        """
        found = yield from self._list(f"consumer-groups/{quoted(group_id)}/lags")
        place, ends = ("topic_name", "partition_id"), ("current_offset", "log_end_offset")
        lag = ("lag", "lag_seconds", "lag_bytes", "consumer_id")
        return [Lag(*(each[name] for name in (*place, *ends, *lag))) for each in found]

    def group_offsets(self, group_id: str) -> Call[dict[TopicPartition, int]]:
        """The offsets of the next records that a group reads, as committed. Raises UnknownGroup."""
        found = yield from self._json("GET", f"/consumers/{quoted(group_id)}/offsets")
        return {TopicPartition(each["topic"], each["partition"]): each["offset"] for each in found["offsets"]}

    def set_offsets(
        self,
        group_id: str,
        offsets: OffsetsOf,
        force: bool = False,
        metadata: str = "",
        keep: bool = False,
    ) -> Call[None]:
        """Set the offsets of the next records that a group reads, without being one of its members.

        With `force` also while it has members, which go on from there. `metadata` is kept with each offset.
        With `keep` the offsets before are kept for `undo_group`, as they are whenever one goes back.

        Raises Conflict, UnknownTopic, UnknownPartition, OffsetOutOfRange.
        """
        named = [
            {"topic": t, "partition": p, "offset": offset, "metadata": metadata}
            for (t, p), offset in offsets.items()
        ]
        path = f"/consumers/{quoted(group_id)}/offsets"
        params = {"force": force, **({"keep": True} if keep else {})}
        yield from self._call("PUT", path, params=params, json={"offsets": named})

    def delete_group(self, group_id: str, force: bool = False) -> Call[None]:
        """Forget a group and its offsets; with `force` also its members, and records of transactions whose
        staged file is lost. Raises UnknownGroup, Conflict.
        """
        yield from self._call("DELETE", f"/consumers/{quoted(group_id)}", params={"force": force})

    def undo_group(self, group_id: str, acts: int = 1, dry_run: bool = False) -> Call[dict[str, Any]]:
        """Give a group the offsets that it had before its newest `acts` deletions and resets.

        Returns the `acts` (all that can be undone, of a `dry_run`), the `offsets` that change, each with its
        `topic`, `partition`, `old` and `new`, and those that are `left` with the `reason`. Raises NotFound
        without such an act, Conflict while the group has members, or if another act comes between.
        """
        path = f"/consumers/{quoted(group_id)}/undo"
        found: dict[str, Any] = yield from self._json("GET", path, params={"acts": acts})
        if not dry_run:
            # By its name: a repeat, or another one at the same time, is not to undo this undo.
            newest = found["acts"][0]["at_ms"] if found["acts"] else 0
            params = {"acts": acts, "newest": newest}
            found = yield from self._json("POST", path, params=params, json={})
        return found

    def acls(self, /, **named: str) -> Call[list[dict[str, str]]]:
        """The ACLs that have all that is `named`, each by the fields of version 3; without a name all.

        Raises InvalidRequest, AuthorizationFailed.
        """
        found = yield from self._v3("GET", "acls", params=named)
        return [_acl(each) for each in found["data"]]

    def create_acls(self, acls: Sequence[Mapping[str, str]]) -> Call[None]:
        """Create ACLs, by the fields of version 3, all or none. Raises as `acls`."""
        yield from self._v3("POST", "acls:batch", json={"data": [dict(each) for each in acls]})

    def delete_acls(self, /, **named: str) -> Call[list[dict[str, str]]]:
        """Delete the ACLs that have all that is `named`; returns them. The types of the resource and of the
        pattern, the operation and the permission have to be named; each may be ANY. Raises as `acls`.
        """
        found = yield from self._v3("DELETE", "acls", params=named)
        return [_acl(each) for each in found["data"]]

    def topic_history(self, name: str) -> Call[dict[str, Any]]:
        """The versions of a topic's settings, the newest first, in `data`: each with its `version`,
        `time_ms`, `event`, `principal` or None, `partitions`, and `changes` (`name`, `old`, `new`). All since
        `since_ms` are there. Raises NotFound.
        """
        found: dict[str, Any] = yield from self._v3("GET", f"topics/{quoted(name)}/history")
        return found

    def revert_topic(
        self, name: str, version: int | None = None, time: int | str | None = None, dry_run: bool = False
    ) -> Call[dict[str, Any]]:
        """Give a topic the settings of a `version` of its history, or of a `time` (milliseconds since 1970,
        or ISO 8601). Returns its `version`, `time_ms` and the `changes`, which a `dry_run` only shows.

        Raises NotFound, OffsetOutOfRange for a time before its history, InvalidRequest.
        """
        path = f"topics/{quoted(name)}/configs:revert"
        return (yield from self._revert(path, version, time, dry_run))

    def access_history(self) -> Call[dict[str, Any]]:
        """The versions of the rules of access, as `topic_history`. Raises AuthorizationFailed."""
        found: dict[str, Any] = yield from self._v3("GET", "acls/history")
        return found

    def revert_acls(
        self,
        version: int | None = None,
        time: int | str | None = None,
        dry_run: bool = False,
        force: bool = False,
    ) -> Call[dict[str, Any]]:
        """Have the ACLs of a `version` of the history, or of a `time`, and no others. Returns what changes,
        as `revert_topic`, and the rights that the caller has `lost`; it must `force` that.

        Raises as `revert_topic`, and Conflict for lost rights.
        """
        more = {"force": True} if force and not dry_run else {}
        return (yield from self._revert("acls:revert", version, time, dry_run, **more))

    def _revert(
        self, path: str, version: int | None, time: int | str | None, dry_run: bool, **more: bool
    ) -> Call[dict[str, Any]]:
        both = {"to_version": version, "to_time": time}
        said = {name: value for name, value in both.items() if value is not None}
        found: dict[str, Any]
        if dry_run:
            found = yield from self._v3("GET", path, params=said)
        else:
            found = yield from self._v3("POST", path, json={**said, **more})
        return found

    def sql(self, query: str, on_scan: Callable[[str, int, int], None] = lambda *_: None) -> "Call[pa.Table]":
        """The answer to a query, as the gateway's console gives it: of topics that the principal may READ.

        `on_scan` is told, for each scan of a topic, its name, how many files were read, and how many it has.
        Raises InvalidArgument and its like for SQL that cannot be answered or takes too long, QuotaReached.
        """
        import pyarrow as pa

        body = {"sql": query, "format": "arrow"}
        try:
            answer = yield from self._call("POST", "/console/sql", json=body)
        except OutcomeUnknown as error:
            raise Unreachable(f"the answer broke off ({error.message}); ask again") from None
        tables, found = [], dict[str, Any]()
        for line in answer.content.splitlines():
            found = json.loads(line)
            if "error" in found:
                raise error_of(found["error"])
            if "arrow" in found:
                with pa.ipc.open_stream(b64decode(found["arrow"])) as reader:
                    tables.append(reader.read_all())
        if "done" not in found:
            raise Unreachable("the answer broke off before its end; ask again")
        for scan in found["done"]["scans"]:
            on_scan(scan["topic"], scan["read"], scan["files"])
        return pa.concat_tables(tables)

    def request(
        self, /, method: str, path: str, *, timeout_s: float | None = None, **options: Any
    ) -> Call[httpx.Response]:
        """One request, not repeated: the caller decides what a repeat means. `options` are httpx's.

        Raises as every method does.
        """
        wait_s = self.timeout_s if timeout_s is None else timeout_s
        answer: httpx.Response = yield Request(method, path, wait_s, options)
        return answer

    def post(
        self, path: str, content: bytes, headers: Mapping[str, str], timeout_s: float | None = None
    ) -> Call[httpx.Response]:
        """POST `content` to `path`, once: the caller decides what a repeat means. Raises as `request`."""
        return self.request("POST", path, timeout_s=timeout_s, content=content, headers=dict(headers))

    def _list(self, path: str) -> Call[list[dict[str, Any]]]:
        """The items of a v3 collection."""
        found = yield from self._v3("GET", path)
        listed: list[dict[str, Any]] = found["data"]
        return listed

    def _v3(self, method: str, path: str, **options: Any) -> Call[Any]:
        """The content of the answer to a request of v3; `path` is relative to the cluster's."""
        if not self._cluster:
            self._cluster = (yield from self.cluster())["cluster_id"]
        answer = yield from self._call(method, f"/v3/clusters/{self._cluster}/{path}", **options)
        return answer.json() if answer.content else None

    def _json(self, method: str, path: str, **options: Any) -> Call[Any]:
        answer = yield from self._call(method, path, **options)
        return answer.json()

    def _call(self, method: str, path: str, **options: Any) -> Call[httpx.Response]:
        request = Request(method, path, self.timeout_s, options)
        return (yield from self._repeated(request, self._asked(patient=False)))

    def _asked(self, *, patient: bool) -> Retry:
        """Repeats what the gateway asks to repeat; if `patient`, also while no gateway answers."""

        def may_repeat(error: LakelogError) -> bool:
            return isinstance(error, errors.Retriable) and (patient or not isinstance(error, Unreachable))

        return Retry(may_repeat, _RETRIED_S, self._clock)

    def _repeated(self, request: Request, again: Retry) -> Call[httpx.Response]:
        while True:
            try:
                answer: httpx.Response = yield request
            except LakelogError as error:
                pause_s = again.pause_s(error)
                if pause_s is None:
                    raise
            else:
                return answer
            yield pause_s


def _group(found: Mapping[str, Any]) -> dict[str, str]:
    return {
        "group": found["consumer_group_id"],
        "state": found["state"],
        "strategy": found["partition_assignor"],
        "protocol_type": found["protocol_type"],
    }


def _acl(found: Mapping[str, Any]) -> dict[str, str]:
    return {name: found[name] for name in _ACL}


def _partition(topic: str, partition: int, what: str) -> str:
    return f"/topics/{quoted(topic)}/partitions/{partition}/{what}"
