"""Who has made the changes that the metadata log has: looked for in the audit log, where there is one."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from log_tables.cluster.admin.audit_log import row
from log_tables.cluster.audit_record import AuditKind
from log_tables.cluster.cluster import Cluster
from log_tables.layout import AUDIT
from log_tables.limits import MIB
from log_tables.partition.reader import PartitionReader
from log_tables.record import to_records

EARLY_MS = 1_000
"""How much earlier than its record the event of a change may be, by the clocks of two processes."""

LATE_MS = 60_000
"""How much later: an event is of the end of a change, which may alter thousands of tables."""

EVENTS_LOOKED_AT = 500
"""Events of one such time that are looked at: of a busy cluster some changes stay without a name."""

LOOKED_FOR_MAX = 100
"""Changes, the newest, that are looked for."""

TOPIC_CHANGES = frozenset(
    {
        "CreateTopics",
        "DeleteTopics",
        "CreatePartitions",
        "AlterConfigs",
        "IncrementalAlterConfigs",
        "RevertConfigs",
        "UndeleteTopic",
        "PromoteMirror",
    }
)
ACCESS_CHANGES = frozenset(
    {
        "CreateAcls",
        "DeleteAcls",
        "RevertAcls",
        "AlterClientQuotas",
        "DeleteClientQuotas",
        "RevertClientQuotas",
        "CreateSuperUser",
        "RemoveSuperUser",
        "EnableSecurity",
        "DisableSecurity",
    }
)


def changed_by(
    cluster: Cluster, times_ms: Sequence[int], operations: Collection[str], topic: str = ""
) -> Mapping[int, str]:
    """By times of changes (milliseconds since 1970) the principals of the nearest events that may be theirs:
    of successful `operations`, on `topic` if it is named. Blocking.

    Raises CorruptLog, CorruptSegment, StoreUnavailable.
    """
    known = cluster.cached_topic(AUDIT)
    if known is None:
        return {}
    log = known.partition(0)
    log.refresh()
    found, used = dict[int, str](), set[object]()
    for at_ms in sorted(times_ms)[-LOOKED_FOR_MAX:]:
        events = [
            each
            for each in _events(log, at_ms)
            if each["operation"] in operations
            and (not topic or each["resource_name"] == topic)
            and each["offset"] not in used
        ]
        nearest = min(events, key=lambda each: abs(each["time"] // 1_000 - at_ms), default=None)
        if nearest is not None and nearest["principal"]:
            used.add(nearest["offset"])
            found[at_ms] = nearest["principal"]
    return found


def _events(log: PartitionReader, at_ms: int) -> list[dict[str, Any]]:
    """Changes that succeeded at about `at_ms`."""
    start = log.position((at_ms - EARLY_MS) * 1_000)
    if start is None:
        return []
    found: list[dict[str, Any]] = []
    looked_at, offset = 0, start
    while offset < log.high_watermark and looked_at < EVENTS_LOOKED_AT:
        plan = log.plan_read(offset, MIB)
        for batch in log.read(plan):
            for record in to_records(batch)[: EVENTS_LOOKED_AT - looked_at]:
                looked_at += 1
                event = cast("dict[str, Any]", {**row(record), "offset": record.offset})
                if event["time"] > (at_ms + LATE_MS) * 1_000:
                    return found
                if event["kind"] == AuditKind.CHANGE and event["outcome"] == "Success":
                    found.append(event)
        offset = plan.end
    return found
