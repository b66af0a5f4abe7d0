"""How a command starts: fast, with help and a version, and with completion for the shell."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakelog import __version__
from tests.kit.gateway import RunningGateway
from tests.kit.support import free_port
from tests.lakelog.cli.test_exit_code import commands

HEAVY = {
    "api",
    "datafusion",
    "deltalake",
    "fastapi",
    "httpx",
    "msgspec",
    "numpy",
    "obstore",
    "pyarrow",
    "pydantic",
    "pyspark",
    "rich",
}
"""What takes a tenth of a second or more to import, so that no help and no usage error waits for it."""

LOADED = """
import sys
from lakelog.cli import app
for arguments in {every!r}:
    try:
        app(arguments)
    except SystemExit as ended:
        assert not ended.code, arguments
    loaded = {heavy!r} & sys.modules.keys()
    assert not loaded, (arguments, loaded)
"""


def lakelog(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "lakelog", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


def test_help_imports_nothing_heavy() -> None:
    every = [["--help"], ["--version"], ["topic", "--help"], *([*words, "--help"] for words, _ in commands())]
    program = LOADED.format(every=every, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("Usage:") == len(every) - 1


def test_the_version_is_that_of_the_package() -> None:
    done = lakelog("--version")
    assert (done.returncode, done.stdout) == (0, f"lakelog {__version__}\n")


def test_help_ends_with_examples() -> None:
    assert lakelog("topic", "delete", "-h").stdout.endswith(
        "\n  Examples:\n    lakelog topic delete orders\n    lakelog topic delete --yes orders prices\n"
    )
    assert "Examples:\n    lakelog fsck" in lakelog("fsck", "-h").stdout


@pytest.mark.parametrize("words", [(), ("topic",), ("topic", "create")], ids=" ".join)
def test_h_is_help(words: tuple[str, ...]) -> None:
    short, long = lakelog(*words, "-h"), lakelog(*words, "--help")
    assert short.returncode == 0
    assert short.stdout.startswith("Usage: ")
    assert short.stdout == long.stdout


def completed(words: str, **environment: str) -> list[str]:
    last = str(len(words.split(" ")) - 1)
    asked = {"_LAKELOG_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": last}
    return lakelog(**asked, **environment).stdout.split()


def test_the_shell_completes_commands_and_options() -> None:
    assert "_LAKELOG_COMPLETE=complete_bash" in lakelog(_LAKELOG_COMPLETE="source_bash").stdout
    assert completed("lakelog topic cre") == ["create"]
    assert completed("lakelog topic create t --part") == ["--partitions"]


def test_the_shell_completes_topics_of_the_gateway_that_would_be_asked(
    gateway: RunningGateway, tmp_path: Path
) -> None:
    gateway.create_topic("complete-me")
    away = f"http://127.0.0.1:{free_port()}"
    alone = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert completed("lakelog consume complete", LAKELOG_URL=gateway.url) == ["complete-me"]
    assert completed(f"lakelog topic delete --url {gateway.url} complete", LAKELOG_URL=away) == [
        "complete-me"
    ]
    assert completed("lakelog produce complete", LAKELOG_URL=away) == []
    lakelog("context", "set", "here", "--url", gateway.url, **alone)
    found = completed("lakelog topic describe complete", LAKELOG_CONTEXT="here", LAKELOG_URL="", **alone)
    assert found == ["complete-me"]


def test_a_command_waits_for_a_gateway_that_is_starting(tmp_path: Path) -> None:
    port = str(free_port())
    serve = [sys.executable, "-m", "lakelog", "serve", "--data", str(tmp_path), "--port", port]
    with subprocess.Popen(serve, stdout=subprocess.DEVNULL) as process:
        done = lakelog("topic", "create", "t", "--url", f"http://127.0.0.1:{port}", "--wait", "300")
        process.terminate()
    assert (done.returncode, done.stdout) == (0, "created topic t with 1 partition\n"), done.stderr
