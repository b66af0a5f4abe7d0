"""How every command ends, whatever it is asked for wrongly: the table of docs/operating.md."""

import inspect
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import NamedTuple, get_args, get_type_hints

import pytest
from typer.models import OptionInfo
from typer.testing import CliRunner, Result

from lakelog.cli import app
from lakelog.cli.common import DENIED, FAILED, INTERRUPTED, UNREACHABLE, WRONG, exit_code
from log_tables import errors
from tests.kit.gateway import RunningGateway
from tests.kit.support import WAIT_S, free_port, wait_until

RIGHT = {
    "lag": ("g",),
    "sql": ("select 1",),
    "maintain": ("--dry-run",),
    "reset-offsets": ("g", "--to", "latest"),
    "alter": ("T", "--partitions", "9"),
    "acl create": ("--allow-principal", "User:ann", "--topic", "T"),
    "topic revert": ("T", "--to", "1"),
    "acl revert": ("--to", "1"),
    "quota revert": ("--to", "1"),
    "acl delete": ("--allow-principal", "User:ann", "--topic", "T"),
}
"""What a command needs to have nothing wrong; of others their arguments, `T` for a topic that is there."""

NOT_ASKED = {
    ("demo", "data"): "it makes its own root, and needs a minute for it",
    ("context set", "url"): "it keeps the name, and asks nobody",
    ("context set", "data"): "as above",
    ("doctor", "url"): "what is wrong there is a finding",
    ("doctor", "data"): "as above",
    ("catalog sync", "url"): "it is that of a catalog, of which a wrong kind is found first",
    ("mirror groups", "url"): "the gateway is asked after the root and the source",
    ("mirror promote", "url"): "as above",
    ("mirror run", "url"): "as above",
}
"""Options of commands that are left out, and why."""


class Option(NamedTuple):
    """An option of a command: the flag, the name of its parameter, and what that is made of."""

    flag: str
    name: str
    kind: type


def commands() -> Iterator[tuple[tuple[str, ...], Callable[..., None]]]:
    """Every command of `lakelog`: its words and its function."""
    groups = [("", app), *((group.name, group.typer_instance) for group in app.registered_groups)]
    for name, group in groups:
        for command in (group or app).registered_commands:
            assert command.callback is not None
            called = command.name or command.callback.__name__.replace("_", "-")
            yield ((name, called) if name else (called,)), command.callback


def options(function: Callable[..., None]) -> Iterator[Option]:
    for name, kind in get_type_hints(function, include_extras=True).items():
        made, *infos = get_args(kind) if hasattr(kind, "__metadata__") else (kind,)
        for info in infos:
            if isinstance(info, OptionInfo):
                flag = next(iter(info.param_decls or ()), f"--{name.replace('_', '-')}")
                yield Option(flag, name, next((k for k in get_args(made) if k is not type(None)), made))


def right(words: tuple[str, ...], function: Callable[..., None]) -> list[str]:
    """Arguments with which there is nothing wrong but what a test adds."""
    for name in (" ".join(words), words[-1]):
        if name in RIGHT:
            return [*words, *RIGHT[name]]
    named = inspect.signature(function).parameters.values()
    return [*words, *("T" for each in named if each.default is inspect.Parameter.empty)]


def wrong(option: Option) -> Iterator[tuple[list[str], int]]:
    """Wrong values of an option, as they are written, and the exit code that they deserve."""
    values: dict[str, tuple[str, ...]] = {
        "url": ("nonsense", "http://[::1"),
        "data": (__file__,),
        "set_": ("colour=red", "linger_ms=soon", "no pair"),
    }
    for value in values.get(option.name, ()):
        yield [option.flag, value], WRONG
    if option.name == "url":
        yield [option.flag, f"http://127.0.0.1:{free_port()}"], UNREACHABLE
    if issubclass(option.kind, int | Enum) and option.kind is not bool:
        yield [option.flag, "nonsense"], WRONG
    yield ["--no-such-option"], WRONG


CASES = [
    (right(words, function) + added, code)
    for words, function in commands()
    for option in options(function)
    if (" ".join(words), option.name) not in NOT_ASKED
    for added, code in wrong(option)
]
ONCE = {
    re.sub(r"(127.0.0.1):\d+", r"\1:PORT", " ".join(arguments)): (arguments, code)
    for arguments, code in CASES
}


@pytest.fixture
def run(gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("LAKELOG_URL", gateway.url)
    monkeypatch.setenv("LAKELOG_WAIT", "0")

    def run(arguments: list[str], stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "argv", ["lakelog", *arguments])
        return CliRunner().invoke(app, arguments, input=stdin, catch_exceptions=False)

    return run


@pytest.mark.parametrize("case", sorted(ONCE))
def test_a_wrong_option_of_any_command_has_its_exit_code(
    run: Callable[..., Result], topic: str, case: str
) -> None:
    arguments, code = ONCE[case]
    done = run([topic if each == "T" else each for each in arguments])
    assert done.exit_code == code, done.output
    assert "Traceback" not in done.output


WRONG_NAMES = [
    ("topic", "describe", "nowhere"),
    ("topic", "alter", "nowhere", "--partitions", "3"),
    ("topic", "alter", "T", "--partitions", "1"),
    ("topic", "alter", "T", "--config", "colour=red"),
    ("topic", "delete", "--yes", "nowhere"),
    ("topic", "delete", "--yes", "__consumer_offsets"),
    ("topic", "create", "T"),
    ("topic", "create", "a/b"),
    ("topic", "create", ".."),
    ("topic", "create", "new", "--partitions", "0"),
    ("topic", "create", "new", "--partitions", "99999999"),
    ("produce", "nowhere"),
    ("produce", "T", "no-such-file"),
    ("consume", "nowhere"),
    ("consume", "T", "nowhere"),
    ("consume", "T", "--partition", "7"),
    ("consume", "T", "--partition", "-1"),
    ("consume", "T", "--from", "99"),
    ("consume", "T", "--from", "9" * 30),
    ("consume", "T", "--from", "-1.5"),
    ("consume", "T", "--from", "99", "--follow"),
    ("consume", "nowhere", "--group", "g"),
    ("consume", "T", "--group", "g", "--partition", "7"),
    ("consume", "T", "--group", "a/b"),
    ("consume", "T", "--group", "g", "--from", "3"),
    ("group", "describe", "nobody"),
    ("group", "lag", "nobody"),
    ("group", "delete", "nobody"),
    ("group", "reset-offsets", "nobody", "--to", "latest"),
    ("group", "reset-offsets", "g", "--topic", "nowhere", "--to", "latest"),
    ("group", "reset-offsets", "g", "--topic", "T:7", "--to", "latest"),
    ("group", "reset-offsets", "g", "--topic", "T", "--to", "yesterday"),
    ("group", "reset-offsets", "g"),
    ("sql", "select * from nowhere", "--data", "ROOT"),
    ("sql", "drop table T", "--data", "ROOT"),
    ("maintain", "--once", "--every", "5m"),
    ("maintain", "--dry-run", "--job", "no-such-job", "--data", "ROOT"),
    ("maintain", "--every", "soon"),
]


@pytest.mark.parametrize("arguments", WRONG_NAMES, ids=" ".join)
def test_a_wrong_name_or_offset_is_exit_code_2(
    run: Callable[..., Result], gateway: RunningGateway, topic: str, arguments: tuple[str, ...]
) -> None:
    named = [each.replace("T", topic) if each[:1] == "T" else each for each in arguments]
    named = [gateway.data if each == "ROOT" else each for each in named]
    done = run(named, b"a line\n")
    assert (done.exit_code, done.stdout) == (WRONG, ""), done.output
    assert done.stderr.startswith("lakelog: ")
    as_json = "--format=json" if named[0] == "sql" else "--json"
    assert json.loads(run([*named, as_json], b"a line\n").stderr)["message"]


def test_every_kind_of_error_has_its_exit_code() -> None:
    found = {
        kind: exit_code(kind("because"))
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.LakelogError)
    }
    for kind, code in found.items():
        asked = issubclass(kind, errors.InvalidRequest | errors.NotFound | errors.Conflict)
        store = kind in (errors.ObjectMissing, errors.AlreadyExists)
        denied = issubclass(kind, errors.AccessDenied)
        expected = DENIED if denied else WRONG if asked and not store else FAILED
        assert code == (UNREACHABLE if kind is errors.Unreachable else expected), kind
    assert exit_code(OSError()) == FAILED
    assert exit_code(KeyboardInterrupt()) == INTERRUPTED


def serve(data: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "lakelog", "serve", "--data", str(data), "--port", "0"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def catches(process: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal."""
    caught = re.search(r"SigCgt:\s*([0-9a-f]+)", Path(f"/proc/{process}/status").read_text())
    return caught is not None and bool(int(caught[1], 16) >> (number - 1) & 1)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="it looks into Linux' /proc")
def test_a_signal_before_it_is_ready_ends_serve_in_order(tmp_path: Path) -> None:
    with serve(tmp_path) as process:
        wait_until(lambda: catches(process.pid, signal.SIGTERM), "serve has begun")
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    assert said == "" or said.startswith("lakelog is ready at")


DEAF = """
import os, signal
from api.process import server
from lakelog.cli import app

class Deaf:
    def __del__(self):  # Python drops what a handler raises here
        os.kill(os.getpid(), signal.SIGTERM)

opened = server.open_gateway

def open_gateway(*arguments, **named):
    Deaf()
    return opened(*arguments, **named)

server.open_gateway = open_gateway
app(["serve", "--data", {data!r}, "--port", "0"])
"""


def test_a_signal_amid_a_callback_while_serve_begins_ends_it(tmp_path: Path) -> None:
    program = DEAF.format(data=str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=WAIT_S
    )
    assert (done.returncode, done.stdout) == (0, "")


FAILING = """
from api.process.server import run
from coordinator.brokers.brokers import Brokers
from ingest.settings import load_settings

async def start(self):
    raise RuntimeError("it cannot begin")

Brokers.start = start
run(load_settings(None, data={data!r}, port=0))
"""


def test_a_start_that_fails_late_is_exit_code_1(tmp_path: Path) -> None:
    program = FAILING.format(data=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (FAILED, "")
    assert "it cannot begin" in done.stderr
