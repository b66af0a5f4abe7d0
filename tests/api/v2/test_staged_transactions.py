"""Transactions whose records were staged beforehand, as Spark's tasks do it, through a real gateway."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from lakelog.client.client import Client
from log_tables.clock import SystemClock
from log_tables.cluster.cluster import Cluster
from log_tables.layout import STAGING
from log_tables.record import Record, input_batch
from log_tables.segments import staging
from log_tables.segments.staging import PartitionRecords, StagedFile
from log_tables.store.store import open_store
from tests.kit.gateway import RunningGateway
from tests.kit.mirrored import mirrored_topic, state_of
from tests.kit.support import wait_until

JSON = "application/vnd.kafka.json.v2+json"


def stage(gateway: RunningGateway, topic: str, *values: bytes, partition: int = 0) -> StagedFile:
    """Stage records for a partition of `topic`, for the group of the same name."""
    store = open_store(gateway.data)
    topic_id = Cluster.open(store, create=False).topic(topic).topic_id
    batch = input_batch([Record(value) for value in values], 0)
    return staging.stage(store, SystemClock(), topic, [PartitionRecords(topic, topic_id, partition, [batch])])


def transact(
    gateway: RunningGateway, group: str, key: str, staged: Sequence[StagedFile] = (), **more: Any
) -> tuple[int, dict[str, Any]]:
    """(Status, answer) of a transaction of nobody in `group`."""
    body = msgspec.json.encode({"staged": staged, **more})
    answer = gateway.client.post(
        f"/consumers/{group}/transactions",
        content=body,
        headers={"Content-Type": JSON, "Idempotency-Key": key},
    )
    return answer.status_code, answer.json()


def values(gateway: RunningGateway, topic: str, partition: int = 0) -> list[bytes]:
    with Client(gateway.url) as client:
        return [record.value or b"" for record in client.read(topic, partition)]


def staged_paths(gateway: RunningGateway) -> set[str]:
    return {item.path for item in open_store(gateway.data).list(f"{STAGING}/")}


def test_what_was_staged_for_a_mirrored_topic_is_refused(gateway: RunningGateway, topic: str) -> None:
    cluster = Cluster.open(open_store(gateway.data), create=False)
    mirrored_topic(cluster, "staged-for")
    state, own = state_of(cluster, "staged-for"), stage(gateway, topic, b"a")
    status, answer = transact(gateway, topic, "1", [own, stage(gateway, "staged-for", b"b")])
    assert (status, answer["error_code"]) == (409, 409)
    assert "and read-only" in answer["message"]
    assert values(gateway, topic) == []
    assert state_of(cluster, "staged-for") == state
    assert transact(gateway, topic, "1", [own])[0] == 200


def test_what_was_staged_is_appended_once_and_the_files_go(gateway: RunningGateway, topic: str) -> None:
    staged = [
        stage(gateway, topic, b"a", b"b"),
        stage(gateway, topic, b"c", partition=1),
        stage(gateway, topic, b"d"),
    ]
    status, answer = transact(gateway, topic, "1", staged)
    assert (status, answer["earlier"]) == (200, False)
    assert transact(gateway, topic, "1", staged) == (200, answer)
    assert values(gateway, topic) == [b"a", b"b", b"d"]
    assert values(gateway, topic, 1) == [b"c"]
    wait_until(
        lambda: not staged_paths(gateway) & {file.path for file in staged}, "the staged files are gone"
    )


def test_work_that_is_done_again_is_staged_anew_and_answered_as_the_first_time(
    gateway: RunningGateway, topic: str
) -> None:
    """Spark runs a batch again after a crash, with other rows perhaps."""
    first, again = stage(gateway, topic, b"a"), stage(gateway, topic, b"b", b"c")
    _, answer = transact(gateway, topic, "7", [first])
    assert transact(gateway, topic, "7", [again]) == (200, {**answer, "earlier": True})
    assert values(gateway, topic) == [b"a"]
    assert again.path in staged_paths(gateway)  # its owner's to delete


def test_other_content_without_staged_files_is_still_refused(gateway: RunningGateway, topic: str) -> None:
    transact(gateway, topic, "7", [stage(gateway, topic, b"a")])
    status, answer = transact(gateway, topic, "7", records=[{"topic": topic, "value": 1}])
    assert (status, answer["error_code"]) == (409, 40911)
    assert values(gateway, topic) == [b"a"]


@pytest.mark.parametrize(
    ("wrong", "code"), [("missing", 40002), ("of another topic", 40401), ("miscounted", 40002)]
)
def test_staged_files_that_cannot_be_used_are_refused(
    gateway: RunningGateway, topic: str, wrong: str, code: int
) -> None:
    staged = stage(gateway, topic, b"a")
    if wrong == "missing":
        staging.delete(open_store(gateway.data), [staged])
    else:
        change: dict[str, Any] = {"records": 2} if wrong == "miscounted" else {"topic": "nowhere"}
        run = msgspec.structs.replace(staged.runs[0], **change)
        staged = StagedFile(staged.path, (run,))
    _, answer = transact(gateway, topic, "1", [staged])
    assert answer["error_code"] == code
    assert values(gateway, topic) == []
