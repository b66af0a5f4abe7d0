"""Groups that read a damaged partition still get the records of the others."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from log_tables.layout import commit_path, partition_directory
from tests.kit.consumers import Instance
from tests.kit.gateway import RunningGateway, running_gateway

DAMAGED, WHOLE = 0, 1


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A root whose topic `t` has two commits in each of two partitions."""
    with running_gateway(tmp_path, linger_ms=0) as gateway:
        gateway.create_topic("t", partitions=2)
        for _ in range(2):
            for partition in (DAMAGED, WHOLE):
                gateway.produce("t", 1, 2, partition=partition)
    return tmp_path


@pytest.fixture
def lost_segment(damaged: Path) -> Iterator[RunningGateway]:
    """The second segment of one partition is lost."""
    sorted((damaged / partition_directory("topics/t", DAMAGED)).glob("*.parquet"))[1].unlink()
    with running_gateway(damaged, linger_ms=0) as gateway:
        yield gateway


@pytest.fixture
def foreign_commit(damaged: Path) -> Iterator[RunningGateway]:
    """Another tool has rewritten one partition."""
    version = len([*(damaged / partition_directory("topics/t", DAMAGED) / "_delta_log").glob("0*.json")])
    damaged.joinpath(commit_path(partition_directory("topics/t", DAMAGED), version)).write_text(
        '{"commitInfo":{"operation":"OPTIMIZE"}}\n'
        '{"add":{"path":"x","size":1,"modificationTime":1,"dataChange":false,"partitionValues":{}}}'
    )
    with running_gateway(damaged, linger_ms=0) as gateway:
        yield gateway


def reader(gateway: RunningGateway, form: str, reset: str = "earliest") -> Instance:
    instance = Instance(gateway.client, "g", "a", format=form, auto_offset_reset=reset)
    instance.subscribe("t")
    return instance


def refused(instance: Instance) -> None:
    answer = instance.send("GET", "records", timeout=0)
    assert (answer.status_code, answer.json()["error_code"]) == (500, 50002)


def test_a_lost_segment_does_not_keep_other_partitions_from_json_readers(
    lost_segment: RunningGateway,
) -> None:
    instance = reader(lost_segment, "json")
    assert [(each["partition"], each["offset"]) for each in instance.poll()] == [
        (WHOLE, offset) for offset in range(4)
    ]
    refused(instance)


def test_a_lost_segment_does_not_keep_what_is_before_it_from_arrow_readers(
    lost_segment: RunningGateway,
) -> None:
    instance = reader(lost_segment, "arrow")
    given = instance.poll_arrow()
    assert [*zip(*(given[name].to_pylist() for name in ("partition", "offset")), strict=True)] == [
        *((DAMAGED, offset) for offset in range(2)),
        *((WHOLE, offset) for offset in range(4)),
    ]
    refused(instance)
    assert instance.commit().status_code == 200
    assert instance.committed("t", DAMAGED, WHOLE) == {DAMAGED: 2, WHOLE: 4}


@pytest.mark.parametrize("form", ["json", "arrow"])
def test_a_foreign_commit_does_not_keep_other_partitions_from_readers(
    foreign_commit: RunningGateway, form: str
) -> None:
    instance = reader(foreign_commit, form)
    given = instance.poll() if form == "json" else instance.poll_arrow().to_pylist()
    assert [(each["partition"], each["offset"]) for each in given] == [(WHOLE, o) for o in range(4)]
    refused(instance)
    foreign_commit.produce("t", 3, partition=WHOLE)
    given = instance.poll() if form == "json" else instance.poll_arrow().to_pylist()
    assert [each["offset"] for each in given] == [4]


def test_a_foreign_commit_does_not_keep_a_group_from_beginning_at_latest(
    foreign_commit: RunningGateway,
) -> None:
    instance = reader(foreign_commit, "json", "latest")
    foreign_commit.produce("t", 3, partition=WHOLE)
    assert [(each["partition"], each["offset"]) for each in instance.poll()] == [(WHOLE, 4)]
    assert instance.committed("t", DAMAGED, WHOLE) == {DAMAGED: 0, WHOLE: 4}
