"""The commands, against a real gateway and its files: what they print, and how they end."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from signal import SIGINT
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import lakelog
from lakelog.cli import app
from lakelog.cli.common import printable
from lakelog.cli.record_format import formatted, value_line
from log_tables.record import Record
from tests.kit.gateway import RunningGateway, running_gateway, start_gateway
from tests.kit.support import free_port

FAILED, USAGE, UNREACHABLE = 1, 2, 3

Run = Callable[..., Result]


@pytest.fixture
def run(gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command as the shell would, with the gateway's URL in the environment."""
    monkeypatch.setenv("LAKELOG_URL", gateway.url)
    monkeypatch.setenv("LAKELOG_WAIT", "0")

    def run(*arguments: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "argv", ["lakelog", *arguments])
        return CliRunner().invoke(app, arguments, input=stdin, catch_exceptions=False)

    return run


def printed(done: Result) -> Any:
    """The JSON document that a command printed."""
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def lines(done: Result) -> list[str]:
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


def wrong(done: Result, exit_code: int, says: str) -> None:
    """It ended so, with one line of explanation and nothing else."""
    assert done.exit_code == exit_code, done.output
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("lakelog: ")
    assert says in line


def test_a_topic_lives_from_creation_to_deletion(run: Run) -> None:
    created = run("topic", "create", "cli-life", "--partitions", "2", "--config", "compression.type=lz4")
    assert lines(created) == ["created topic cli-life with 2 partitions"]
    assert "cli-life" in lines(run("topic", "list"))
    described = run("topic", "describe", "cli-life")
    assert "log_start_offset" in described.stdout
    assert "lz4" in described.stdout
    altered = run("topic", "alter", "cli-life", "--unset", "compression.type", "--partitions", "3")
    assert "3 partitions" in lines(altered)[0]
    assert lines(run("topic", "delete", "cli-life")) == ["deleted topic cli-life"]
    assert "cli-life" not in lines(run("topic", "list"))


def test_topics_are_created_described_and_deleted_together(run: Run) -> None:
    names = ("cli-one", "cli-two")
    created = lines(run("topic", "create", *names))
    assert created == [f"created topic {name} with 1 partition" for name in names]
    assert [line for line in lines(run("topic", "describe", *names)) if "cli-" in line] == [
        f"topic {name}" for name in names
    ]
    described = map(json.loads, lines(run("topic", "describe", *names, "--json")))
    assert [each["topic"] for each in described] == list(names)
    half = run("topic", "create", "cli-three", "cli-one")
    assert (half.exit_code, half.stdout) == (USAGE, "created topic cli-three with 1 partition\n")
    deleted = lines(run("topic", "delete", *names, "cli-three"))
    assert deleted == [f"deleted topic {name}" for name in (*names, "cli-three")]


def test_topic_commands_speak_json(run: Run) -> None:
    assert printed(run("topic", "create", "cli-json", "--json")) == {"topic": "cli-json", "partitions": 1}
    assert "cli-json" in printed(run("topic", "list", "--json"))
    described = printed(run("topic", "describe", "cli-json", "--json"))
    partition = {"partition": 0, "log_start_offset": 0, "high_watermark": 0, "records": 0}
    assert (described["topic"], described["partitions"]) == ("cli-json", [partition])
    altered = printed(run("topic", "alter", "cli-json", "--config", "compression.type=snappy", "--json"))
    assert altered["configs"]["compression.type"] == "snappy"
    assert printed(run("topic", "delete", "cli-json", "--json")) == {"deleted": "cli-json"}


def test_lines_go_in_and_come_out(run: Run, topic: str) -> None:
    text = "first\nzwei ü\n\nlast\r\n".encode()
    done = run("produce", topic, "-", stdin=text)
    assert lines(done)[0].startswith(f"4 records to topic {topic} in ")
    assert lines(run("consume", topic)) == ["first", "zwei ü", "", "last"]


def test_lines_have_keys_and_all_records_headers(run: Run, topic: str) -> None:
    flags = ("--key-separator", r"\t", "--header", "source=files", "--header", "source=two=2")
    assert lines(run("produce", topic, *flags, stdin=b'k\t{"a": 1}\n\t\n'))[0].startswith("2 records ")
    found = [json.loads(line) for line in lines(run("consume", topic, "--json"))]
    assert sorted((each["key"], each["value"]) for each in found) == [("", ""), ("k", '{"a": 1}')]
    headers = [{"key": "source", "value": "files"}, {"key": "source", "value": "two=2"}]
    assert [each["headers"] for each in found] == [headers, headers]


@pytest.mark.parametrize("suffix", ["ndjson", "csv", "parquet"])
def test_rows_of_a_file_have_keys_and_times(run: Run, topic: str, tmp_path: Path, suffix: str) -> None:
    rows = [{"id": 1, "at": "2024-01-01T00:00:00Z"}, {"id": 2, "at": "2024-01-01T01:00:00+00:00"}]
    file = tmp_path / f"rows.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), file)
    elif suffix == "csv":
        file.write_text("id,at\n" + "".join(f"{row['id']},{row['at']}\n" for row in rows))
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows) + "\n")
    flags = ("--key-field", "id", "--timestamp-field", "at", "--json")
    done = printed(run("produce", topic, str(file), *flags))
    assert (done["topic"], done["records"]) == (topic, 2)
    found = [json.loads(line) for line in lines(run("consume", topic, "--json"))]
    assert sorted((each["key"], each["timestamp"]) for each in found) == [
        ("1", 1_704_067_200_000),
        ("2", 1_704_070_800_000),
    ]
    assert sorted(json.loads(each["value"])["id"] for each in found) == [1, 2]


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        ("1500", 1_500),
        ('"1970-01-02"', 86_400_000),
        ('"1970-01-01 00:00:01.250"', 1_250),
        ('"1969-12-31T19:00:01-05:00"', 1_000),
        ('"1969-12-31T23:59:59Z"', -1_000),
    ],
)
def test_a_time_is_milliseconds_or_iso_8601_in_utc(
    run: Run, topic: str, text: str, milliseconds: int
) -> None:
    line = f'{{"at": {text}}}'.encode()
    lines(run("produce", topic, "--format", "ndjson", "--timestamp-field", "at", stdin=line))
    assert printed(run("consume", topic, "--json"))["timestamp"] == milliseconds


@pytest.mark.parametrize("text", ['"noon"', "true", "1e30", "[]", "null", '"2024-13-01"'])
def test_what_is_no_time_is_refused_with_its_value(
    run: Run, gateway: RunningGateway, topic: str, text: str
) -> None:
    line = f'{{"at": {text}}}'.encode()
    done = run("produce", topic, "--format", "ndjson", "--timestamp-field", "at", stdin=line)
    wrong(done, USAGE, "at=")
    assert lines(run("consume", topic)) == []


def test_what_python_takes_for_json_and_nobody_else_does_is_refused(run: Run, topic: str) -> None:
    done = run("produce", topic, "--format", "ndjson", stdin=b'{"at": NaN}')
    wrong(done, USAGE, "line 1 is not JSON")


def test_every_kind_of_column_becomes_json(run: Run, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "kinds.parquet"
    row = {"f": float("nan"), "b": b"\xff", "t": datetime(2024, 1, 1, tzinfo=UTC), "d": Decimal("1.50")}
    pq.write_table(pa.Table.from_pylist([row]), file)
    assert printed(run("produce", topic, str(file), "--key-field", "b", "--json"))["records"] == 1
    found = printed(run("consume", topic, "--json"))
    value = {"f": None, "b": "/w==", "t": "2024-01-01T00:00:00Z", "d": "1.50"}
    assert (found["key_base64"], json.loads(found["value"])) == ("/w==", value)


def test_the_last_row_of_a_csv_may_change_the_type_of_a_column(run: Run, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "late.csv"
    rows = [f"{n},{'x' * 300_000}" for n in (1, 2, 3, 4, 5, "six")]  # more than is looked at to guess types
    file.write_text("\n".join(["n,long", *rows, ""]))
    assert printed(run("produce", topic, str(file), "--json"))["records"] == 6
    found = (json.loads(line)["n"] for line in lines(run("consume", topic)))
    assert sorted(found) == ["1", "2", "3", "4", "5", "six"]


def test_keys_that_are_no_text_are_json(run: Run, topic: str) -> None:
    rows = b'{"k": true}\n{"k": {"a": 1}}\n{"k": null}\n'
    lines(run("produce", topic, "--format", "ndjson", "--key-field", "k", stdin=rows))
    found = [json.loads(line)["key"] for line in lines(run("consume", topic, "--json"))]
    assert sorted(found, key=str) == [None, "true", '{"a":1}']


def test_a_record_is_printed_whole_with_json(run: Run, gateway: RunningGateway, topic: str) -> None:
    body = {"records": [{"key": "aw==", "value": "/w==", "timestamp": 5, "headers": [{"key": "h"}]}]}
    gateway.client.post(
        f"/topics/{topic}/partitions/1",
        json=body,
        headers={"Content-Type": "application/vnd.kafka.binary.v2+json"},
    )
    assert printed(run("consume", topic, "--json")) == {
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestamp": 5,
        "key": "k",
        "value_base64": "/w==",
        "headers": [{"key": "h", "value": None}],
    }


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("%k %s\\n", "k v\n\u0020\n"),
        ("%t/%p@%o %T\\n", "T/1@0 5\nT/1@1 6\n"),
        ("%K,%S,%h;", "1,1,a=1,a=2;-1,-1,;"),
        ("100%%\\t\\x41\\\\\\0", "100%\tA\\\0" * 2),
        ("%k\n", "k\n\n"),
    ],
)
def test_records_are_printed_in_a_format_of_ones_own(
    run: Run, gateway: RunningGateway, topic: str, form: str, expected: str
) -> None:
    with lakelog.Producer(gateway.url) as producer:
        producer.send(topic, b"v", b"k", [("a", b"1"), ("a", b"2")], timestamp_ms=5, partition=1)
        producer.send(topic, None, timestamp_ms=6, partition=1)
    done = run("consume", topic, "--format", form)
    assert (done.exit_code, done.stdout) == (0, expected.replace("T/", f"{topic}/"))
    assert run("consume", topic, "--format", form, "--group", topic).stdout == done.stdout
    assert "use one of them" in run("consume", topic, "--format", form, "--json").stderr


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((), [0, 1, 2, 3]),
        (("--from", "earliest"), [0, 1, 2, 3]),
        (("--from", "latest"), []),
        (("--from", "2"), [2, 3]),
        (("--from", "4"), []),
        (("--from", "1970-01-01T00:00:01Z"), [1, 2, 3]),
        (("--from", "1970-01-01T00:00:01.500"), [2, 3]),
        (("--from", "1970-01-01T01:00:03+01:00"), [3]),
        (("--from", "1969-12-31T20:00:02-04:00"), [2, 3]),
        (("--from", "1970-01-01"), [0, 1, 2, 3]),
        (("--from", "2024-01-01"), []),
        (("-o", "-1"), [3]),
        (("-o", "-3"), [1, 2, 3]),
        (("-o", "-10"), [0, 1, 2, 3]),
        (("-o", "-0"), []),
        (("--max", "2"), [0, 1]),
        (("--from", "1", "--max", "1"), [1]),
        (("--from", "3", "--max", "5"), [3]),
        (("--follow", "--max", "4"), [0, 1, 2, 3]),
    ],
)
def test_consuming_begins_and_ends_where_it_is_told(
    run: Run, gateway: RunningGateway, topic: str, flags: tuple[str, ...], expected: list[int]
) -> None:
    rows = [{"value": number, "timestamp": 1_000 * number} for number in range(4)]
    gateway.client.post(f"/topics/{topic}/partitions/0", json={"records": rows})
    assert lines(run("consume", topic, "--partition", "0", *flags)) == list(map(str, expected))


def test_several_topics_are_read_one_after_the_other(run: Run, gateway: RunningGateway, topic: str) -> None:
    other = gateway.create_topic(f"{topic}-other")
    gateway.produce(topic, 1, partition=0)
    gateway.produce(other, 2)
    assert lines(run("consume", other, topic)) == ["2", "1"]
    assert sorted(lines(run("consume", other, topic, "--group", topic))) == ["1", "2"]


def test_following_prints_what_comes_later(gateway: RunningGateway, topic: str) -> None:
    command = [sys.executable, "-m", "lakelog", "consume", topic, "--follow", "--url", gateway.url]
    gateway.produce(topic, "before", partition=0)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == '"before"\n'
        gateway.produce(topic, "after", partition=1)
        assert process.stdout.readline() == '"after"\n'
        process.send_signal(SIGINT)
        assert process.wait() == 0


def test_following_survives_a_restart_of_the_gateway(tmp_path: Path) -> None:
    port = free_port()
    gateway = start_gateway(tmp_path, "--port", str(port), linger_ms=0)
    gateway.create_topic("t", 2)
    command = [sys.executable, "-m", "lakelog", "consume", "t", "--follow", "--url", gateway.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for partition in range(2):
            gateway.produce("t", partition, partition=partition)
            assert process.stdout.readline() == f"{partition}\n"
            gateway.kill()
            gateway = start_gateway(tmp_path, "--port", str(port), linger_ms=0)
        process.terminate()
    gateway.stop()


def test_a_reader_that_has_had_enough_ends_the_command_quietly(gateway: RunningGateway, topic: str) -> None:
    gateway.produce(topic, *("x" * 1_000 for _ in range(500)), partition=0)
    command = [sys.executable, "-m", "lakelog", "consume", topic, "--url", gateway.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert (process.wait(), process.stderr.read()) == (FAILED, b"")


@pytest.mark.parametrize(
    ("arguments", "exit_code", "says"),
    [
        (("topic", "describe", "nowhere"), USAGE, "'nowhere'"),
        (("topic", "delete", "nowhere"), USAGE, "'nowhere'"),
        (("topic", "create", "a/b"), USAGE, "'a/b'"),
        (("topic", "create", "T"), USAGE, "exists already"),
        (("topic", "create", "new", "--config", "colour=red"), USAGE, "'colour'"),
        (("topic", "create", "new", "--config", "colour"), USAGE, "name=value"),
        (("topic", "alter", "T", "--partitions", "1"), USAGE, "2 partitions"),
        (("topic", "alter", "T"), USAGE, "nothing to change"),
        (("produce", "nowhere"), USAGE, "'nowhere'"),
        (("produce", "T", "no-such-file"), USAGE, "no-such-file"),
        (("produce", "T", "--acks", "2"), USAGE, "acks='2' is not known; use"),
        (("produce", "T", "--key-field", "id"), USAGE, "lines have no fields"),
        (("produce", "T", "--format", "parquet"), USAGE, "standard input"),
        (("produce", "T", "--format", "ndjson"), USAGE, "line 1 is not JSON"),
        (("consume", "nowhere"), USAGE, "'nowhere'"),
        (("consume", "T", "--partition", "7"), USAGE, "partition 7"),
        (("consume", "T", "--from", "yesterday"), USAGE, "'yesterday'"),
        (("consume", "T", "--from", "99"), USAGE, "99"),
        (("consume", "T", "--from", "-last"), USAGE, "'-last'"),
        (("consume", "T", "--group", "g", "--from", "-3"), USAGE, "'-3'"),
        (("consume", "T", "--format", "%z"), USAGE, "'%z', which is no field; use %t"),
        (("consume", "T", "--format", "a%"), USAGE, "'%', which is no field"),
        (("consume", "T", "--format", "\\q"), USAGE, "which is no escape"),
        (("produce", "T", "--key-separator", ""), USAGE, "empty"),
        (("produce", "T", "--key-separator", ":"), USAGE, "line 1: the key separator ':' is not in it"),
        (("produce", "T", "--key-separator", ":", "--format", "ndjson"), USAGE, "use --key-field"),
        (("produce", "T", "--header", "h"), USAGE, "name=value"),
        (("consume", "nowhere", "--group", "g"), USAGE, "'nowhere'"),
        (("consume", "T", "--group", "g", "--from", "1"), USAGE, "'1'"),
        (("consume", "T", "--group", "g", "--partition", "7"), USAGE, "partition 7"),
        (("group", "describe", "nobody"), USAGE, "'nobody'"),
        (("group", "lag", "nobody"), USAGE, "'nobody'"),
        (("group", "delete", "nobody"), USAGE, "'nobody'"),
        (("sql", "SELECT 1", "--data", "/no/such/root"), USAGE, "/no/such/root"),
        (("fsck", "--data", "/no/such/root"), USAGE, "/no/such/root"),
    ],
)
def test_what_goes_wrong_is_one_line_and_an_exit_code(
    run: Run, gateway: RunningGateway, topic: str, arguments: tuple[str, ...], exit_code: int, says: str
) -> None:
    arguments = tuple(topic if each == "T" else each for each in arguments)
    wrong(run(*arguments, stdin=b"not json\n"), exit_code, says)
    ends = gateway.client.get(f"/topics/{topic}/partitions/0/offsets").json()["end_offset"]
    assert ends == 0
    done = run(*arguments, "--json", stdin=b"not json\n")
    assert done.exit_code == exit_code
    assert says in json.loads(done.stderr)["message"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("topic", "list"),
        ("topic", "create", "t"),
        ("produce", "t"),
        ("consume", "t"),
        ("consume", "t", "--group", "g"),
        ("group", "list"),
        ("bench",),
    ],
)
def test_no_gateway_is_exit_code_3(run: Run, arguments: tuple[str, ...]) -> None:
    done = run(*arguments, "--url", f"http://127.0.0.1:{free_port()}", stdin=b"a line")
    wrong(done, UNREACHABLE, "no gateway")


@pytest.mark.parametrize(
    "arguments", [("topic", "create"), ("consume", "t", "--max", "none"), ("no-such",), ("sql", "--colour")]
)
def test_wrong_usage_is_exit_code_2(run: Run, arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.exit_code == USAGE
    assert "Usage:" in done.stderr


def test_the_command_itself_ends_without_a_traceback() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "lakelog", "topic", "list", "--url", url, "--wait", "0", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (UNREACHABLE, "")
    assert json.loads(done.stderr)["error"] == "unreachable"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a stopped gateway with one topic in it."""
    data = tmp_path_factory.mktemp("cli")
    with running_gateway(data, linger_ms=0) as gateway:
        gateway.create_topic("sales", 2)
        for number in range(6):
            gateway.produce("sales", {"amount": number}, partition=number % 2)
    return data


def test_a_question_is_answered_from_the_files(run: Run, root: Path) -> None:
    query = 'SELECT "partition", max("offset") AS last, count(*) AS n FROM sales GROUP BY 1 ORDER BY 1'
    assert printed(run("sql", query, "--data", str(root), "--json")) == [
        {"partition": 0, "last": 2, "n": 3},
        {"partition": 1, "last": 2, "n": 3},
    ]
    shown = lines(run("sql", "SELECT sum(amount) AS total FROM sales_json", "--data", str(root)))
    assert [line.strip() for line in shown] == ["total", "15", "(1 row)"]
    for query in ("SELECT", "SELECT * FROM nowhere"):
        done = run("sql", query, "--data", str(root))
        assert done.exit_code in (FAILED, USAGE)
        assert done.stderr.startswith("lakelog: ")
        assert "Traceback" not in done.stderr


def test_values_do_not_control_the_terminal_that_they_are_shown_on(
    run: Run, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert printable("\x1b[2J\x9b\x7f\ttab\n\ud800é") == "\\x1b[2J\\x9b\\x7f\ttab\n\\ud800é"
    query = "SELECT chr(27) || '[2J [/x] [red]y :smile:' AS \"[b]\""
    shown = lines(run("sql", query, "--data", str(root)))
    assert [line.strip() for line in shown[:2]] == ["[b]", "\\x1b[2J [/x] [red]y :smile:"]
    record = Record(b"\x1b[2J\xff")
    for show in (value_line, formatted("%s\\n")):
        assert show("t", 0, record) == b"\x1b[2J\xff\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for show in (value_line, formatted("%s\\n")):
        assert show("t", 0, record) == b"\\x1b[2J\\xff\n"


def test_bytes_are_text_in_the_json_of_an_answer(run: Run, root: Path) -> None:
    query = """SELECT arrow_cast('é', 'Binary') AS key, decode('ff', 'hex') AS value, NULL AS nothing,
        make_array(arrow_cast('a', 'Binary')) AS list, named_struct('value', decode('ff', 'hex')) AS struct"""
    assert printed(run("sql", query, "--data", str(root), "--json")) == [
        {
            "key": "é",
            "value_base64": "/w==",
            "nothing": None,
            "list": ["a"],
            "struct": {"value_base64": "/w=="},
        }
    ]
    (row,) = printed(
        run(
            "sql", 'SELECT * FROM sales WHERE "offset" = 0 AND "partition" = 1', "--data", str(root), "--json"
        )
    )
    assert (row["key"], row["value"]) == (None, '{"amount":1}')


def test_a_long_answer_is_cut_for_people_and_whole_in_json(run: Run, root: Path) -> None:
    query = "SELECT value FROM generate_series(1, 1500)"
    shown = lines(run("sql", query, "--data", str(root)))
    assert (len(shown), shown[-1]) == (1002, "(500 more rows; --json prints all)")
    assert len(printed(run("sql", query, "--data", str(root), "--json"))) == 1500


def test_fsck_finds_nothing_in_a_sound_root(run: Run, root: Path) -> None:
    report = printed(run("fsck", "--data", str(root), "--json"))
    assert report["problems"] == []
    assert lines(run("fsck", "--data", str(root)))[-1] == "every invariant holds"


def test_fsck_names_the_damage_and_ends_with_1(run: Run, root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    (segment, *_) = sorted(copy.glob("topics/sales/0/*.parquet")) or sorted(copy.rglob("*.parquet"))
    segment.unlink()
    done = run("fsck", "--data", str(copy))
    assert done.exit_code == FAILED
    assert "BROKEN: " in done.stdout
    assert segment.name in done.stdout
    done = run("fsck", "--data", str(copy), "--json")
    assert done.exit_code == FAILED
    assert any(segment.name in problem for problem in json.loads(done.stdout)["problems"])


def test_a_short_bench_prints_its_figures_and_leaves_no_topic(run: Run) -> None:
    flags = ("--seconds", "1", "--records", "10", "--connections", "1", "--partitions", "1", "--json")
    for wire in ("json", "arrow"):
        figures = printed(run("bench", "--format", wire, *flags))
        assert figures["produced records/s"] > 0
        assert figures["fetched records/s"] > 0
    assert not any(name.startswith("bench-") for name in printed(run("topic", "list", "--json")))
