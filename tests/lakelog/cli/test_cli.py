"""How commands fail: one line, an exit code, no traceback."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.cli import FAILED, UNREACHABLE, USAGE, Run, wrong
from tests.kit.gateway import RunningGateway
from tests.kit.support import free_port


@pytest.mark.parametrize(
    ("arguments", "exit_code", "says"),
    [
        (("topic", "describe", "nowhere"), USAGE, "'nowhere'"),
        (("topic", "delete", "--yes", "nowhere"), USAGE, "'nowhere'"),
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
    as_json = ("--format", "json") if arguments[0] == "sql" else ("--json",)
    done = run(*arguments, *as_json, stdin=b"not json\n")
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


def test_a_port_that_a_gateway_has_is_named_with_its_root(gateway: RunningGateway, tmp_path: Path) -> None:
    found = gateway.client.get("/v3/clusters").json()["data"][0]["location"].removeprefix("file://")
    port = gateway.url.rpartition(":")[2]
    command = [sys.executable, "-m", "lakelog", "serve", "--port", port, "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (FAILED, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"lakelog: 127.0.0.1:{port} is taken by a lakelog gateway on {found}; ")
