"""Arrow answers: whole, in small messages however large the batches, and clear when a file is broken."""

from pathlib import Path

import pyarrow as pa

from api.wire.arrow import MESSAGE_BYTES, encode_stream
from log_tables.record import RECORD_SCHEMA, Record, input_batch, with_offsets
from tests.kit.gateway import RunningGateway, running_gateway

ARROW = "application/vnd.apache.arrow.stream"


def test_a_large_batch_goes_out_in_small_messages() -> None:
    values = [bytes([index % 251]) * 10_000 for index in range(1_000)]
    rows = input_batch([Record(value) for value in values], now_us=1)
    offsets = pa.array(range(1_000)).to_numpy()
    messages = list(encode_stream([with_offsets([rows], offsets)]))
    assert max(map(len, messages)) < 2 * MESSAGE_BYTES
    with pa.ipc.open_stream(b"".join(messages)) as reader:
        assert reader.schema == RECORD_SCHEMA
        table = reader.read_all()
    assert table.column("value").to_pylist() == values
    assert table.column("offset").to_pylist() == list(range(1_000))


def test_nothing_new_is_a_stream_without_rows(gateway: RunningGateway, topic: str) -> None:
    path = f"/topics/{topic}/partitions/0/records"
    answer = gateway.client.get(path, params={"offset": 0}, headers={"Accept": ARROW})
    with pa.ipc.open_stream(answer.content) as reader:
        assert reader.read_all().num_rows == 0
    assert answer.headers["Next-Offset"] == "0"


def test_a_broken_segment_is_an_error_and_no_half_answer(gateway: RunningGateway) -> None:
    name = gateway.create_topic("broken-segment")
    for value in range(2):
        assert gateway.produce(name, value, partition=0).status_code == 200
    for segment in (Path(gateway.data) / "topics" / name / "partition=0").glob("*.parquet"):
        segment.write_bytes(b"no Parquet")
    # The leader has the records in memory: a second gateway reads the file.
    with running_gateway(gateway.data) as second:
        answer = second.client.get(
            f"/topics/{name}/partitions/0/records", params={"offset": 0}, headers={"Accept": ARROW}
        )
    assert (answer.status_code, answer.json()["error_code"]) == (500, 50002)
