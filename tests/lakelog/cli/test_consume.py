"""`lakelog consume`: where it begins and ends, what it prints, how it follows."""

import base64
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGINT
from threading import Timer
from typing import Any

import pytest

import lakelog
from tests.kit.cli import FAILED, USAGE, Run, lines, printed
from tests.kit.gateway import RunningGateway, start_gateway
from tests.kit.support import WAIT_S, exit_code, free_port


def test_a_record_is_printed_whole_with_json(run: Run, gateway: RunningGateway, topic: str) -> None:
    body = {"records": [{"key": "aw==", "value": "/w==", "timestamp": 5, "headers": [{"key": "h"}]}]}
    gateway.client.post(
        f"/topics/{topic}/partitions/1",
        json=body,
        headers={"Content-Type": "application/vnd.kafka.binary.v2+json"},
    )
    assert printed(run("consume", topic, "--json", "--value-format", "base64")) == {
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestamp": 5,
        "key": "k",
        "value": "/w==",
        "headers": [{"key": "h", "value": None}],
    }


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("%k %s\\n", "k v\nNULL NULL\n"),
        ("%t/%p@%o %T\\n", "T/1@0 5\nT/1@1 6\n"),
        ("%K,%S,%h;", "1,1,a=1,a=2;-1,-1,;"),
        ("100%%\\t\\x41\\\\\\0", "100%\tA\\\0" * 2),
        ("%k\n", "k\nNULL\n"),
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


def test_no_value_is_told_from_an_empty_one(run: Run, gateway: RunningGateway, topic: str) -> None:
    with lakelog.Producer(gateway.url) as producer:
        for value in (b"", None):
            producer.send(topic, value, partition=0)
    assert lines(run("consume", topic)) == ["", "NULL"]
    assert lines(run("consume", topic, "--value-format", "hex")) == ["", "NULL"]


@pytest.mark.parametrize("form", ["json", "base64", "hex"])
def test_no_value_is_told_from_every_value_of_a_format(
    run: Run, gateway: RunningGateway, topic: str, form: str
) -> None:
    with lakelog.Producer(gateway.url) as producer:
        for value in (base64.b64decode("NULL"), b'"NULL"', b"null", None):
            producer.send(topic, value, partition=0)
    missing_as = "<NULL>" if form == "base64" else "NULL"  # base64 has the text NULL: three bytes
    at = {"json": "1"}.get(form, "0")  # the first is no JSON
    *there, missing = lines(run("consume", topic, "--from", at, "--partition", "0", "--value-format", form))
    assert missing == missing_as
    assert missing not in there


@pytest.mark.parametrize(
    ("form", "value", "line", "in_json"),
    [
        ("text", b'{"a": 1.50}', '{"a": 1.50}', '"value":"{\\"a\\": 1.50}"'),
        ("json", b'{"a":\n 1.50}', '{"a":1.50}', '"value":{"a":1.50}'),
        ("base64", b"\xff", "/w==", '"value":"/w=="'),
        ("hex", b"\xff", "ff", '"value":"ff"'),
    ],
)
def test_values_keys_and_headers_are_printed_in_one_format(
    run: Run, gateway: RunningGateway, topic: str, form: str, value: bytes, line: str, in_json: str
) -> None:
    with lakelog.Producer(gateway.url) as producer:
        producer.send(topic, value, value, [("h", value)], partition=0)
    flags = [word for name in ("key", "value", "header") for word in (f"--{name}-format", form)]
    assert lines(run("consume", topic, *flags)) == [line]
    assert lines(run("consume", topic, *flags, "--format", "%k|%s|%h\\n")) == [f"{line}|{line}|h={line}"]
    (whole,) = lines(run("consume", topic, *flags, "--json"))
    assert whole.count(in_json) == 2
    assert in_json.replace("value", "key") in whole


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--json",), "partition 0, is not UTF-8; use --value-format base64"),
        (("--value-format", "json"), "is not JSON; use --value-format text"),
    ],
)
def test_what_a_format_does_not_have_ends_the_command(
    run: Run, gateway: RunningGateway, topic: str, flags: tuple[str, ...], says: str
) -> None:
    with lakelog.Producer(gateway.url) as producer:
        producer.send(topic, b"\xff", partition=0)
    done = run("consume", topic, *flags)
    assert done.exit_code == USAGE
    assert f"the value at offset 0 of topic {topic}" in done.stderr
    assert says in done.stderr


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


@contextmanager
def ended_in_time(process: "subprocess.Popen[Any]") -> "Iterator[subprocess.Popen[Any]]":
    """A line of a process that prints nothing is awaited for WAIT_S at most."""
    ending = Timer(WAIT_S, process.kill)
    ending.start()
    try:
        with process:
            yield process
    finally:
        ending.cancel()


def test_following_prints_what_comes_later(gateway: RunningGateway, topic: str) -> None:
    command = [sys.executable, "-m", "lakelog", "consume", topic, "--follow", "--url", gateway.url]
    gateway.produce(topic, "before", partition=0)
    with ended_in_time(subprocess.Popen(command, stdout=subprocess.PIPE, text=True)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == '"before"\n'
        gateway.produce(topic, "after", partition=1)
        assert process.stdout.readline() == '"after"\n'
        gateway.client.patch(f"{gateway.cluster}/topics/{topic}", json={"partitions_count": 4})
        for partition in (2, 3):
            gateway.produce(topic, f"in {partition}", partition=partition)
        added = {process.stdout.readline() for _ in range(2)}
        assert added == {'"in 2"\n', '"in 3"\n'}, "what came before it looked, too"
        process.send_signal(SIGINT)
        assert exit_code(process) == 0


def test_following_survives_a_restart_of_the_gateway(tmp_path: Path) -> None:
    port = free_port()
    gateway = start_gateway(tmp_path, "--port", str(port), linger_ms=0)
    gateway.create_topic("t", 2)
    command = [sys.executable, "-m", "lakelog", "consume", "t", "--follow", "--url", gateway.url]
    with ended_in_time(subprocess.Popen(command, stdout=subprocess.PIPE, text=True)) as process:
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
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with ended_in_time(started) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert (exit_code(process), process.stderr.read()) == (FAILED, b"")
