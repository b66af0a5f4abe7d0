"""`lakelog produce`: nothing is sent of a file that is wrong, and who is interrupted knows where to go on."""

import bz2
import gzip
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from signal import SIGINT

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from lakelog.cli import app
from lakelog.cli.commands.produce import Tally
from lakelog.client.producer.delivery import BatchResult, Delivery
from log_tables.errors import BufferFull, InvalidRecord, OutcomeUnknown
from tests.kit.gateway import RunningGateway, start_gateway
from tests.kit.support import WAIT_S, wait_until

Run = Callable[..., Result]
ROWS = b'{"id": 1}\n{"id": 2}\n\n{"id": 3}\n'


@pytest.fixture
def run(gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("LAKELOG_URL", gateway.url)

    def run(*arguments: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "argv", ["lakelog", *arguments])
        return CliRunner().invoke(app, arguments, input=stdin, catch_exceptions=False)

    return run


def held(run: Run, topic: str) -> list[str]:
    return sorted(run("consume", topic).stdout.splitlines())


def zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data))


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (b"not JSON", "line 5 is not JSON"),
        (b"[1]", "line 5: the record is no JSON object with a field 'id'"),
        (b'{"other": 1}', "line 5: a record has no field 'id'"),
        (b'{"id": "' + b"x" * 2_000_000 + b'"}', "line 5: the record has"),
        (b"[" * 100_000, "line 5: a value has more than 500 arrays or objects within one another"),
        (b'{"id": ' + b"[" * 100_000, "line 5: a value has more than 500"),
        (b'{"id": 1, "a": {"id": 2}, "id": 3}', "line 5: the record has the field 'id' more than once"),
        (b'{"id": 1, "\\u0069d": 3}', "line 5: the record has the field 'id' more than once"),
        (b'{"id": "\xff"}', "line 5 is not JSON: it is not UTF-8 at byte 8"),
    ],
)
def test_of_a_file_that_is_wrong_nothing_is_sent(
    run: Run, topic: str, tmp_path: Path, bad: bytes, says: str
) -> None:
    file = tmp_path / "rows.ndjson"
    file.write_bytes(ROWS + bad + b"\n")
    done = run("produce", topic, str(file), "--key-field", "id")
    assert done.exit_code == 2
    assert says in done.stderr
    assert done.stderr.endswith("nothing was sent\n")
    assert held(run, topic) == []


def test_of_standard_input_what_was_sent_is_told_and_can_be_skipped(run: Run, topic: str) -> None:
    done = run("produce", topic, "--format", "ndjson", stdin=ROWS + b"oops\n" + b'{"id": 4}\n')
    assert done.exit_code == 2
    assert "line 5 is not JSON" in done.stderr
    assert done.stderr.endswith("; 3 records were sent; go on with --skip 3\n")
    again = run("produce", topic, "--format", "ndjson", "--skip", "3", stdin=ROWS + b"{}\n" + b'{"id": 4}\n{')
    assert again.stderr.endswith("; 2 records were sent; go on with --skip 5\n")
    assert held(run, topic) == sorted(['{"id": 1}', '{"id": 2}', '{"id": 3}', "{}", '{"id": 4}'])


@pytest.mark.parametrize("skip", [0, 1, 3])
@pytest.mark.parametrize("suffix", ["ndjson", "csv", "parquet", "txt"])
def test_records_are_skipped_in_every_format(
    run: Run, topic: str, tmp_path: Path, suffix: str, skip: int
) -> None:
    file, table = tmp_path / f"rows.{suffix}", pa.table({"id": [1, 2, 3]})
    if suffix == "parquet":
        pq.write_table(table, file)
    else:
        file.write_text({"ndjson": ROWS.decode(), "csv": "id\n1\n2\n3\n", "txt": "1\n2\n3\n"}[suffix])
    done = run("produce", topic, str(file), "--skip", str(skip), "--json")
    assert json.loads(done.stdout)["records"] == 3 - skip
    assert len(held(run, topic)) == 3 - skip
    beyond = run("produce", topic, str(file), "--skip", "4")
    assert (beyond.exit_code, "has 3 records, so --skip 4 leads beyond its end" in beyond.stderr) == (2, True)


@pytest.mark.parametrize("pack", [gzip.compress, zstd], ids=["gz", "zst"])
@pytest.mark.parametrize("named", ["rows.ndjson", "rows.ndjson.gz", "ROWS.NDJSON.ZST"])
def test_packed_files_are_inflated_by_what_they_are(
    run: Run, topic: str, tmp_path: Path, pack: Callable[[bytes], bytes], named: str
) -> None:
    file = tmp_path / named
    file.write_bytes(pack(ROWS))
    assert run("produce", topic, str(file)).exit_code == 0
    assert run("produce", topic, "--format", "ndjson", stdin=pack(ROWS)).exit_code == 0
    assert held(run, topic) == sorted(['{"id": 1}', '{"id": 2}', '{"id": 3}'] * 2)


def test_a_file_of_several_gzip_members_is_read_whole(run: Run, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.ndjson.gz"
    file.write_bytes(gzip.compress(b'{"id": 1}\n', mtime=0) + gzip.compress(b'{"id": 2}\n'))
    assert run("produce", topic, str(file)).exit_code == 0
    assert held(run, topic) == ['{"id": 1}', '{"id": 2}']


LONG = b"".join(b'{"id": %d}\n' % (number * 7919) for number in range(20_000))


@pytest.mark.parametrize("pack", [gzip.compress, zstd], ids=["gz", "zst"])
def test_a_packed_file_that_is_cut_off_is_refused(
    run: Run, topic: str, tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    file, packed = tmp_path / "rows.ndjson.gz", pack(LONG)
    file.write_bytes(packed[: len(packed) // 2])
    done = run("produce", topic, str(file))
    assert done.exit_code == 2, done.output
    assert done.stderr.endswith("nothing was sent\n")
    assert held(run, topic) == []


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("rows", ROWS, "name its --format"),
        ("rows.json", ROWS, "name its --format"),
        ("rows.xlsx", b"PK\x03\x04" + ROWS, "name its --format"),
        ("rows.bz2", bz2.compress(ROWS), "name its --format"),
        ("rows.ndjson", bz2.compress(ROWS), "is bzip2"),
        ("rows.csv", b"PK\x03\x04" + ROWS, "is a zip archive"),
        ("rows.txt", b"PAR1" + ROWS, "is Parquet"),
        ("rows.parquet", ROWS, "is not parquet"),
        ("rows.parquet", gzip.compress(ROWS, mtime=0), "is not parquet"),
        ("rows.txt", b"\x00\x01\x02\n", "bytes that are no text"),
        ("rows.txt.gz", gzip.compress(b"\x00\x01\x02\n", mtime=0), "bytes that are no text"),
        ("rows.txt.gz", gzip.compress(gzip.compress(ROWS, mtime=0), mtime=0), "packed twice"),
        ("rows.csv", b"a,b\n1\n", "line 2 has 1 fields, the header line names 2"),
        ("rows.csv", b"a,b,a\n1,2,3\n", "line 1 names the column 'a' twice"),
        ("rows.csv", b"a,a\n", "line 1 names the column 'a' twice"),
        ("rows.csv", b",b\n1,2\n", "line 1: column 1 has no name"),
        ("rows.csv", b"a\n1\n\xff\n", "line 3 is not UTF-8 at byte 0"),
        ("rows.csv", b'a\n"1\n2\n', "line 3 is not CSV: unexpected end of data"),
    ],
)
def test_what_it_does_not_know_is_refused(
    run: Run, topic: str, tmp_path: Path, name: str, data: bytes, says: str
) -> None:
    file = tmp_path / name
    file.write_bytes(data)
    done = run("produce", topic, str(file))
    assert done.exit_code == 2, done.output
    assert says in done.stderr
    assert held(run, topic) == []


def test_columns_of_one_name_are_refused_in_parquet_too(run: Run, topic: str, tmp_path: Path) -> None:
    file, numbers = tmp_path / "rows.parquet", pa.array([1])
    inner = pa.StructArray.from_arrays([numbers, numbers], ["x", "x"])
    for table, says in (
        (pa.Table.from_arrays([numbers, numbers], ["a", "a"]), "has 2 columns named 'a'"),
        (pa.table({"a": inner}), "row 1, column 'a' cannot be JSON (fields of one name among x, x)"),
    ):
        pq.write_table(table, file)
        done = run("produce", topic, str(file))
        assert (done.exit_code, says in done.stderr) == (2, True), done.stderr
        assert done.stderr.endswith("nothing was sent\n")
    file.write_bytes(file.read_bytes()[:-20])
    assert run("produce", topic, str(file)).stderr.endswith("nothing was sent\n")
    assert held(run, topic) == []
    done = run("produce", topic, "--format", "csv", stdin=b"a,a\n1,2\n")
    assert done.stderr.endswith("; 0 records were sent; go on with --skip 0\n")


def test_a_line_is_sent_as_it_stands_but_for_the_mark_before_the_first(
    run: Run, topic: str, tmp_path: Path
) -> None:
    """Fields that nobody asks for may be twice there, or be numbers of any length."""
    rows = [b'{"id": 1, "id": 2}', b'{"a": ' + b"1" * 6_000 + b"}", b'{"id":  3, "a": "\xef\xbb\xbf"}']
    file = tmp_path / "rows.ndjson"
    file.write_bytes(b"\xef\xbb\xbf" + b"\n".join(rows))
    assert run("produce", topic, str(file)).exit_code == 0
    assert held(run, topic) == sorted(row.decode() for row in rows)


def test_pipes_and_devices_are_read_once(run: Run, topic: str, tmp_path: Path) -> None:
    assert json.loads(run("produce", topic, "/dev/null", "--json").stdout)["records"] == 0
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(ROWS,))
    writer.start()
    assert run("produce", topic, str(pipe), "--format", "ndjson").exit_code == 0
    writer.join()
    assert held(run, topic) == ['{"id": 1}', '{"id": 2}', '{"id": 3}']
    parquet = run("produce", topic, str(pipe), "--format", "parquet")
    assert (parquet.exit_code, "can only be read once" in parquet.stderr) == (2, True)
    directory = run("produce", topic, str(tmp_path))
    assert (directory.exit_code, "is a directory" in directory.stderr) == (2, True)


def test_lines_may_be_any_bytes_when_it_is_said(run: Run, topic: str) -> None:
    assert run("produce", topic, stdin=b"\x00\n").exit_code == 2
    assert run("produce", topic, "--format", "lines", stdin=b"\x00\n").exit_code == 0
    assert held(run, topic) == ["\x00"]


def test_nothing_to_send_still_needs_a_topic_and_a_gateway(run: Run) -> None:
    assert run("produce", "nowhere").exit_code == 2


def test_who_is_interrupted_is_told_where_to_go_on(tmp_path: Path) -> None:
    gateway = start_gateway(tmp_path, linger_ms=0)
    gateway.create_topic("t")
    command = [sys.executable, "-m", "lakelog", "produce", "t", "--url", gateway.url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        process.stdin.write("first\nsecond\n")
        process.stdin.flush()
        path = "/topics/t/partitions/0/offsets"
        wait_until(lambda: gateway.client.get(path).json()["end_offset"] == 2, "two are sent")
        process.send_signal(SIGINT)
        _, said = process.communicate(timeout=WAIT_S)
    gateway.stop()
    assert process.returncode == 130
    assert said.endswith("lakelog: 2 records were sent; go on with --skip 2\n")


def settled(error: Exception | None = None) -> Delivery:
    outcome = BatchResult("t", 0)
    outcome.join()
    outcome.resolve(None if error else 0, error)
    return Delivery(outcome, 0)


def test_records_behind_the_first_that_failed_are_told_apart() -> None:
    tally = Tally(10)
    tally.add(settled())
    with pytest.raises(BufferFull):
        tally.add(settled(BufferFull("full")))
    for error in (None, OutcomeUnknown("lost"), None, InvalidRecord("no")):
        with pytest.raises(BufferFull):
            tally.add(settled(error))
    assert tally.sentence() == (
        "1 record was sent; go on with --skip 11, which sends 2 later ones again that were delivered; 1 may "
        "be in the log or not, so read its end with lakelog consume -o -10"
    )


def test_a_topic_is_created_where_that_is_asked_for(run: Run) -> None:
    for sent in (b"one\n", b"two\n"):
        assert run("produce", "cli-made", "--create", stdin=sent).exit_code == 0
    assert run("consume", "cli-made").stdout == "one\ntwo\n"
    assert "'a/b'" in run("produce", "a/b", "--create", stdin=b"one\n").stderr
