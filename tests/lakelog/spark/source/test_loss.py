"""A running query whose records are gone before it has read them: `failOnDataLoss`.

Kafka's source compares names and offsets alone: of a re-created topic it continues at the old offset.
Ours must never skip or read again without a word.
"""

from pathlib import Path

import pytest

from lakelog.spark.source.slices import DataLost
from log_tables.cluster.admin.topic_admin import delete_topic
from log_tables.errors import InvalidArgument, UnknownTopic
from log_tables.store.store import open_store
from tests.kit.spark import Query, Topics, read


@pytest.fixture
def topics(store_root: Path) -> Topics:
    """Two partitions of `t` with five records each."""
    made = Topics(open_store(store_root))
    made.create("t", 2)
    made.append("t", 0, 5)
    made.append("t", 1, 5)
    return made


FIVE = [*range(5)]


def begun(topics: Topics, **options: object) -> Query:
    """A query that has read what there is."""
    query = topics.query(**options)
    assert query.trigger() is not None
    return query


@pytest.mark.parametrize("left_over", [0, 3])
def test_a_topic_deleted_under_a_query_ends_it(topics: Topics, left_over: int) -> None:
    """Kafka: "t-0 are gone", whether all of it was read or not."""
    query = begun(topics)
    if left_over:
        topics.append("t", 0, left_over)
    delete_topic(topics.cluster, "t")
    for asked in (query, query, query.restart()):
        with pytest.raises(DataLost, match="t-0 is gone: its topic was deleted"):
            asked.trigger()
    with pytest.raises(UnknownTopic, match="there is no topic 't' to read"):
        topics.query().trigger()


def test_a_query_may_go_on_without_a_topic_that_was_deleted(topics: Topics) -> None:
    """Kafka: with failOnDataLoss=false a warning, and the other topics are read on."""
    topics.create("u")
    topics.append("u", 0, 2)
    query = begun(topics, subscribe="t,u", failOnDataLoss="false")
    delete_topic(topics.cluster, "t")
    topics.append("u", 0, 2)
    assert query.trigger() == {"u-0": [2, 3]}
    assert query.trigger() is None
    topics.create("t", 1)
    topics.append("t", 0, 3)
    assert query.trigger() == {"t-0": [0, 1, 2]}


def test_it_waits_for_its_only_topic_to_come_back(topics: Topics) -> None:
    query = begun(topics, failOnDataLoss="false")
    delete_topic(topics.cluster, "t")
    assert query.trigger() == {}
    assert query.trigger() is None
    assert query.restart().trigger() is None
    topics.create("t", 1)
    topics.append("t", 0, 3)
    assert query.trigger() == {"t-0": [0, 1, 2]}


def test_it_may_go_on_without_it_after_a_restart_too(topics: Topics) -> None:
    topics.create("u")
    topics.append("u", 0, 2)
    query = begun(topics, subscribe="t,u", failOnDataLoss="false")
    delete_topic(topics.cluster, "t")
    topics.append("u", 0, 2)
    assert query.restart().trigger() == {"u-0": [2, 3]}
    assert query.trigger() == {"u-0": [2, 3]}
    assert query.restart().trigger() is None


def test_an_assigned_partition_that_a_new_topic_lacks_is_lost(topics: Topics) -> None:
    query = begun(topics, assign={"t": [0, 1]})
    topics.recreate("t", 1)
    topics.append("t", 0, 2)
    with pytest.raises(DataLost, match="re-created"):
        query.restart().trigger()
    assert query.restart(failOnDataLoss="false").trigger() == {"t-0": [0, 1]}


def test_a_loss_is_told_once_and_not_at_every_look(topics: Topics, caplog: pytest.LogCaptureFixture) -> None:
    query = begun(topics, subscribePattern="t", failOnDataLoss="false", minOffsetsPerTrigger="1000")
    delete_topic(topics.cluster, "t")
    for _ in range(50):
        assert query.trigger() is None
    assert caplog.records == []


@pytest.mark.parametrize("records", [0, 3, 5, 9])
@pytest.mark.parametrize("how", [{}, {"subscribePattern": "t"}, {"assign": {"t": [0, 1]}}])
def test_a_recreated_topic_under_a_query_ends_it(
    topics: Topics, how: dict[str, object], records: int
) -> None:
    """Kafka: silence, or an error when the new log is shorter. Here an error, running or restarted."""
    query = begun(topics, **how)
    topics.recreate("t", 2)
    if records:
        topics.append("t", 0, records)
    for again in (query, query.restart(), query.restart()):
        for _ in range(2):
            with pytest.raises(DataLost, match="t-0 is gone: its topic was re-created"):
                again.trigger()
        with pytest.raises(DataLost, match="re-created"):
            again.available_now()


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("records", [3, 5, 9])
def test_a_query_may_go_on_with_the_new_topic_from_its_beginning(
    topics: Topics, records: int, stopped: bool
) -> None:
    query = begun(topics, failOnDataLoss="false")
    topics.recreate("t", 1)
    topics.append("t", 0, records)
    again = query.restart() if stopped else query
    assert again.trigger() == {"t-0": [*range(records)]}
    assert again.trigger() is None
    topics.append("t", 0, 1)
    assert again.restart().trigger() == {"t-0": [records]}


def test_a_recreated_topic_during_available_now(topics: Topics) -> None:
    """The records that the query was to read are lost; those of the new topic are for its next run."""

    def again() -> None:
        if topics.cluster.topic("t").partition_count == 2:
            topics.recreate("t", 1)
            topics.append("t", 0, 2)

    with pytest.raises(DataLost, match="re-created"):
        topics.query(maxOffsetsPerTrigger="4").available_now(again)
    topics.recreate("t", 2)
    topics.append("t", 0, 5)
    query = topics.query(maxOffsetsPerTrigger="2", failOnDataLoss="false")
    assert query.available_now(again) == [{"t-0": [0, 1]}, {}]
    assert query.restart(maxOffsetsPerTrigger="9").available_now() == [{"t-0": [0, 1]}]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_planned_micro_batch_of_a_recreated_topic_is_not_read_from_the_new_one(
    topics: Topics, fail: str
) -> None:
    """After a crash Spark plans the last micro-batch again before it asks for a new one."""
    query = topics.query(failOnDataLoss=fail)
    query.plan()
    topics.recreate("t", 2)
    topics.append("t", 0, 9)
    restarted = query.restart()
    assert query.offset is not None
    before = {"t": {**query.offset["t"], "0": 0, "1": 0}}
    if fail == "true":
        with pytest.raises(DataLost, match="re-created"):
            restarted.reader.partitions(before, query.offset)
    else:
        assert restarted.reader.partitions(before, query.offset) == []
        assert restarted.trigger() == {"t-0": [*range(9)]}


def test_a_micro_batch_that_left_a_topic_behind_is_lost_data_to_a_stricter_query(topics: Topics) -> None:
    """Kafka: "t-0 are gone", also when Spark plans the last micro-batch again."""
    query = begun(topics, failOnDataLoss="false")
    before = query.offset
    topics.recreate("t", 2)
    topics.append("t", 0, 3)
    query.plan()
    strict = query.restart(failOnDataLoss="true")
    assert before is not None
    assert query.offset is not None
    with pytest.raises(DataLost, match="re-created"):
        strict.reader.partitions(before, query.offset)


def test_the_files_of_a_planned_micro_batch_may_go_with_their_topic(topics: Topics) -> None:
    for fail in ("true", "false"):
        query = topics.query(failOnDataLoss=fail)
        query.plan()
        directory = topics.cluster.topic("t").directory
        topics.recreate("t", 2)
        assert read(query.reader, query.planned) == {"t-0": FIVE, "t-1": FIVE}
        topics.sweep_data(directory)
        if fail == "true":
            with pytest.raises(DataLost, match="topic t was deleted while t-0 was read"):
                read(query.reader, query.planned)
        else:
            assert read(query.reader, query.planned) == {}
        topics.append("t", 0, 5)
        topics.append("t", 1, 5)


def test_a_topic_that_the_options_no_longer_choose_is_lost(topics: Topics) -> None:
    """Kafka: options changed between two runs: "are gone" too."""
    topics.create("u")
    query = begun(topics, subscribe="t,u")
    with pytest.raises(DataLost, match="u-0 is gone: its topic was deleted, or the options no longer"):
        query.restart(subscribe="t").trigger()
    narrower = query.restart(subscribe="t", failOnDataLoss="false")
    topics.append("t", 0, 1)
    assert narrower.trigger() == {"t-0": [5]}


def test_records_deleted_before_a_query_came_to_them(topics: Topics) -> None:
    """Kafka: the offset is out of range: an error, else it goes on where the log begins."""
    strict, lenient = begun(topics), begun(topics, failOnDataLoss="false")
    topics.append("t", 0, 10)
    topics.partition("t", 0).truncate(5)
    assert not topics.query(startingOffsets="latest").plan()
    # Records that were read already may go.
    assert strict.restart().plan()
    topics.partition("t", 0).truncate(8)
    for query in (strict, strict.restart()):
        with pytest.raises(DataLost, match="offsets 5 to 7 of t-0 are gone, its log starts at 8"):
            query.trigger()
    assert lenient.trigger() == {"t-0": [*range(8, 15)]}
    assert lenient.trigger() is None


def test_a_limit_counts_deleted_offsets_too(topics: Topics) -> None:
    """Kafka: the limit is shared out over offsets, whether their records are there or not."""
    topics.append("t", 0, 10)
    query = topics.query(assign={"t": [0]}, maxOffsetsPerTrigger="6", failOnDataLoss="false")
    assert query.trigger() == {"t-0": [*range(6)]}
    topics.partition("t", 0).truncate(13)
    assert [query.trigger() for _ in range(3)] == [{}, {"t-0": [13, 14]}, None]


def test_all_records_deleted_is_lost_data_too(topics: Topics) -> None:
    query = begun(topics)
    topics.append("t", 1, 5)
    topics.partition("t", 1).truncate(10)
    lenient = query.restart(failOnDataLoss="false")
    with pytest.raises(DataLost, match="offsets 5 to 9 of t-1 are gone"):
        query.trigger()
    assert lenient.trigger() == {}
    topics.append("t", 1, 1)
    assert lenient.trigger() == {"t-1": [10]}


def test_records_deleted_after_planning(topics: Topics) -> None:
    """Kafka: an executor that finds its offset out of range obeys failOnDataLoss as well."""
    queries = {fail: topics.query(failOnDataLoss=fail) for fail in ("true", "false")}
    for query in queries.values():
        query.plan()
    partition = topics.partition("t", 0)
    topics.append("t", 0, 5)
    gone = [item.path for item in partition.snapshot.segments][:1]
    partition.truncate(7)
    topics.remove(partition, gone)
    with pytest.raises(DataLost, match="offsets 0 to 4 of t-0 were removed while they were read"):
        read(queries["true"].reader, queries["true"].planned)
    assert read(queries["false"].reader, queries["false"].planned) == {"t-1": FIVE}


def test_a_place_in_an_earlier_topic_is_no_start(topics: Topics) -> None:
    """Kafka has no way to tell."""
    offset = begun(topics).offset
    topics.append("t", 0, 1)
    assert topics.query(startingOffsets=offset).trigger() == {"t-0": [5]}
    topics.recreate("t", 2)
    topics.append("t", 0, 9)
    with pytest.raises(InvalidArgument, match="offsets of an earlier topic t"):
        topics.query(startingOffsets=offset, failOnDataLoss="false").trigger()
