"""The records that a poll of a consumer instance gives: which, how many, in which format."""

from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pytest

from log_tables.limits import READ_SEGMENTS_MAX
from tests.kit.consumers import JSON, Instance
from tests.kit.gateway import RunningGateway, append_segments, leave_every_tenth


def test_a_record_wakes_a_waiting_poll(gateway: RunningGateway, topic: str, group: str) -> None:
    reader = Instance(gateway.client, group, "reader", auto_offset_reset="latest")
    reader.subscribe(topic)
    reader.poll()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(reader.poll, timeout=25_000)
        gateway.produce(topic, "new", partition=1)
        assert [record["value"] for record in waiting.result()] == ["new"]


def test_formats(gateway: RunningGateway, topic: str, group: str) -> None:
    gateway.produce(topic, "text", partition=0)
    binary = Instance(gateway.client, f"{group}-b", "reader", format="binary")
    binary.subscribe(topic)
    assert binary.values(1) == ["InRleHQi"]
    plain = Instance(gateway.client, f"{group}-t", "reader", format="text")
    plain.subscribe(topic)
    assert plain.values(1) == ['"text"']
    arrow = Instance(gateway.client, f"{group}-a", "reader", format="arrow")
    arrow.subscribe(topic)
    rows = arrow.poll_arrow().to_pylist()
    assert [(row["topic"], row["partition"], row["offset"], row["value"]) for row in rows] == [
        (topic, 0, 0, b'"text"')
    ]
    assert arrow.poll_arrow().num_rows == 0
    mismatch = arrow.client.get(f"{arrow.path}/records", headers={"Accept": JSON})
    assert (mismatch.status_code, mismatch.json()["error_code"]) == (406, 40601)


def test_max_bytes_and_fetch_min_bytes(gateway: RunningGateway, topic: str, group: str) -> None:
    gateway.produce(topic, *["x" * 1_000] * 50, partition=0)
    reader = Instance(gateway.client, group, "reader")
    reader.subscribe(topic)
    some = reader.poll(max_bytes=5_000)
    assert 1 <= len(some) < 50
    assert len(reader.values(50 - len(some))) == 50 - len(some)
    patient = Instance(gateway.client, f"{group}-p", "reader", fetch_min_bytes=10_000_000)
    patient.subscribe(topic)
    assert len(patient.poll(timeout=50)) == 50


@pytest.mark.parametrize("form", ["json", "arrow"])
def test_only_the_first_partition_with_records_may_exceed_max_bytes(
    gateway: RunningGateway, topic: str, group: str, form: str
) -> None:
    """The others have their records in later polls, in which another one is the first."""
    for partition in range(2):
        gateway.produce(topic, "x" * 10_000, "y" * 20_000, partition=partition)
    reader = Instance(gateway.client, group, "reader", format=form)
    reader.subscribe(topic)

    def given(max_bytes: int) -> list[tuple[int, int]]:
        if form == "json":
            rows = reader.poll(max_bytes=max_bytes)
        else:
            rows = reader.poll_arrow(max_bytes=max_bytes).to_pylist()
        return [(row["partition"], row["offset"]) for row in rows]

    found = [given(12_000) for _ in range(4)]
    assert [len(each) for each in found] == [1, 1, 1, 1]
    assert sorted(chain(*found)) == [(0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize("form", ["json", "arrow"])
def test_a_poll_of_a_segment_with_gaps_keeps_to_its_bytes(
    gateway: RunningGateway, topic: str, group: str, form: str
) -> None:
    gateway.produce(topic, *range(100), partition=0)
    leave_every_tenth(gateway, topic)
    reader = Instance(gateway.client, group, "reader", format=form)
    reader.subscribe(topic)
    for offset in range(0, 100, 10):
        rows = reader.poll(max_bytes=1) if form == "json" else reader.poll_arrow(max_bytes=1).to_pylist()
        assert [row["offset"] for row in rows] == [offset]


def test_a_record_that_is_not_json_stops_its_partition_only(
    gateway: RunningGateway, topic: str, group: str
) -> None:
    gateway.produce(topic, "good", partition=1)
    gateway.client.post(
        f"/topics/{topic}/partitions/0",
        json={"records": [{"value": "/w=="}]},
        headers={"Content-Type": "application/vnd.kafka.binary.v2+json"},
    )
    reader = Instance(gateway.client, group, "reader")
    reader.subscribe(topic)
    assert reader.values(1) == ["good"]
    stuck = reader.send("GET", "records")
    assert (stuck.status_code, stuck.json()["error_code"]) == (422, 42203)
    reader.send("POST", "positions", {"offsets": [{"topic": topic, "partition": 0, "offset": 1}]})
    assert reader.poll() == []


def test_deleted_records_are_passed_over(gateway: RunningGateway, topic: str, group: str) -> None:
    gateway.produce(topic, *range(5), partition=0)
    reader = Instance(gateway.client, group, "reader")
    reader.subscribe(topic)
    assert len(reader.values(5)) == 5
    reader.commit({(topic, 0): 0})
    gateway.produce(topic, 5, partition=0)
    gateway.client.delete(f"/topics/{topic}/partitions/0/records", params={"before": 5})
    reader.delete()
    following = Instance(gateway.client, group, "following")
    following.subscribe(topic)
    assert following.values(1) == [5]


def test_a_poll_without_a_subscription_is_refused(gateway: RunningGateway, group: str) -> None:
    reader = Instance(gateway.client, group, "reader")
    assert reader.send("GET", "records").json()["error_code"] == 40913


def test_a_poll_reads_a_bounded_number_of_segments_and_waits_for_no_more(
    gateway: RunningGateway, topic: str, group: str
) -> None:
    append_segments(gateway, topic, READ_SEGMENTS_MAX + 4)
    reader = Instance(gateway.client, group, "reader", fetch_min_bytes=10_000_000)
    reader.subscribe(topic)
    assert len(reader.poll(timeout=25_000)) == READ_SEGMENTS_MAX
    assert len(reader.poll(timeout=50)) == 4
