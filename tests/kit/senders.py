"""The programs of docs/senders.md, with the recipes that stand there."""

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kit.gateway import RunningGateway
from tests.kit.support import ROOT

RECIPES = (ROOT / "docs" / "senders.md").read_text()
TELEGRAF = ROOT / ".tools" / "bin" / "telegraf"
FILE = "/var/log/app.log"
HOST = "localhost:8082"


def recipe(language: str, url: str, file: Path | None = None) -> str:
    """The recipe in a block of this language, for the gateway at `url` and a file with lines."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", RECIPES, re.DOTALL)
    made: str = found.replace(f"http://{HOST}", url)
    return made if file is None else made.replace(FILE, str(file))


def _syslog_ng(directory: Path) -> Sequence[str]:
    if shutil.which("syslog-ng") is None:
        pytest.skip("no syslog-ng: install Debian's syslog-ng-mod-http, in the place of another syslog")
    own = {"-R": "persist", "-p": "pid", "-c": "control"}
    places = [part for flag, name in own.items() for part in (flag, str(directory / name))]
    return ["syslog-ng", "--foreground", "--no-caps", "--stderr", *places, "-f"]


def _telegraf(_: Path) -> Sequence[str]:
    if not TELEGRAF.exists():
        pytest.skip("no Telegraf: `make torture` builds it where Go is installed")
    return [str(TELEGRAF), "--config"]


PROGRAMS = {"syslog-ng": _syslog_ng, "toml": _telegraf}
"""The command of each program, up to the name of its configuration; by the language of its recipe."""


@contextmanager
def sending(language: str, url: str, file: Path, directory: Path) -> Iterator[None]:
    """The program whose recipe is written in `language`, which sends the lines of `file`."""
    configuration = directory / "configuration"
    configuration.write_text(recipe(language, url, file))
    command = [*PROGRAMS[language](directory), str(configuration)]
    with (directory / "said").open("w") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            process.terminate()
            process.wait()


def values_of(gateway: RunningGateway, topic: str, partitions: int) -> Iterator[object]:
    """The value of each record of `topic`."""
    for partition in range(partitions):
        offset, end = 0, 1
        while offset < end:
            path = f"/topics/{topic}/partitions/{partition}/records"
            answer = gateway.client.get(path, params={"offset": offset})
            yield from (record["value"] for record in answer.json())
            offset, end = (int(answer.headers[name]) for name in ("Next-Offset", "High-Watermark"))
