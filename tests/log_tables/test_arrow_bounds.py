"""A few bytes of Arrow do not stand for gigabytes, whichever number in them is changed."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from log_tables.arrow_bounds import check_stream
from log_tables.errors import InvalidRecord
from log_tables.limits import RECORD_COLUMNS_BYTES, STREAM_BATCHES_MAX, STREAM_RECORDS_MAX
from tests.kit.arrow_attacks import (
    HUGE,
    MARK,
    decode,
    small_batches,
    stream,
    with_rows,
)
from tests.kit.gateway import RunningGateway
from tests.kit.support import ROOT

ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}


def refuse(body: bytes) -> str:
    with pytest.raises(InvalidRecord) as refused:
        check_stream(body)
    return refused.value.message


@pytest.mark.parametrize("rows", HUGE)
def test_a_number_of_rows_that_nothing_stands_behind_is_refused(rows: int) -> None:
    for batch in small_batches():
        assert str(rows) in refuse(with_rows(stream(batch), rows))


def test_as_many_records_as_are_allowed_are_taken() -> None:
    body = stream(next(small_batches()))
    assert check_stream(body) == MARK * RECORD_COLUMNS_BYTES
    assert check_stream(with_rows(body, STREAM_RECORDS_MAX)) == STREAM_RECORDS_MAX * RECORD_COLUMNS_BYTES
    assert f"{STREAM_RECORDS_MAX + 1} records" in refuse(with_rows(body, STREAM_RECORDS_MAX + 1))


def test_batches_are_counted_and_gateways_may_send_more_of_them() -> None:
    empty = pa.record_batch({"value": pa.nulls(0)})
    check_stream(stream(empty, times=STREAM_BATCHES_MAX))
    more = stream(empty, times=STREAM_BATCHES_MAX + 1)
    assert f"more than {STREAM_BATCHES_MAX} batches" in refuse(more)
    check_stream(more, batches_max=STREAM_BATCHES_MAX + 1)


def test_room_is_asked_for_before_a_record_is_made() -> None:
    asked: list[int] = []
    body = stream(pa.record_batch({"value": pa.array([b"x" * 1_000] * 1_000)}), "zstd")
    before = pa.total_allocated_bytes()

    def hold(size: int) -> None:
        asked.append(size)
        assert pa.total_allocated_bytes() == before

    assert decode(body, hold) == "taken"
    assert 1_000_000 < asked[0] < 1_100_000


def attacked(examples: int) -> str:
    """Run the attacks, and `examples` random ones, in a process with little memory. Returns its output."""
    command = [sys.executable, "-m", "tests.kit.arrow_attacks", str(examples)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


needs_proc = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc: it tells the memory")


@needs_proc
def test_every_attack_is_refused_in_little_memory() -> None:
    assert attacked(100) == ""


@needs_proc
@pytest.mark.torture
def test_thousands_of_wild_streams_end_in_little_memory() -> None:
    assert attacked(30_000) == ""


@pytest.mark.parametrize("path", ["/topics/{}", "/topics/{}/partitions/0", "/consumers/g/transactions"])
def test_a_gateway_refuses_them_on_every_path(gateway: RunningGateway, topic: str, path: str) -> None:
    body = with_rows(stream(next(small_batches())), 300_000_000)
    columns = [pa.nulls(MARK), pa.repeat(topic, MARK)]
    if "transactions" in path:
        body = with_rows(stream(pa.record_batch(columns, ["value", "topic"])), 300_000_000)
    answer = gateway.client.post(path.format(topic), content=body, headers=ARROW)
    assert (answer.status_code, answer.json()["error_code"]) == (422, 42206)
    assert "300000000 records" in answer.json()["message"]
