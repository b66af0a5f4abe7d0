"""The programs of docs/senders.md, with the recipes that stand there."""

import json
import re
import subprocess
from base64 import b64decode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kit.gateway import RunningGateway
from tests.kit.support import ROOT, exit_code

RECIPES = (ROOT / "docs" / "senders.md").read_text()
TELEGRAF = ROOT / ".tools" / "bin" / "telegraf"
RSYSLOG, SYSLOG_NG = ROOT / ".tools" / "rsyslog", ROOT / ".tools" / "syslog-ng"
"""Debian's packages of them, and of what they need and this machine lacks, unpacked."""

FILE = "/var/log/app.log"
SPOOL = "/var/spool/rsyslog"
HOST, BOOTSTRAP = "localhost:8082", "localhost:9092"


def recipe(language: str, **places: object) -> str:
    """The recipe in a block of this language, with other `places` for those that it names."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", RECIPES, re.DOTALL)
    made: str = found
    for name, place in places.items():
        made = made.replace(
            {"url": f"http://{HOST}", "bootstrap": BOOTSTRAP, "file": FILE, "spool": SPOOL}[name], str(place)
        )
    return made


def _unpacked(directory: Path) -> Sequence[str]:
    """The start of a command line for programs in `directory`: it sets the path of their libraries."""
    if not directory.exists():
        pytest.skip(f"no {directory.name}: `make setup` says why")
    libraries = sorted({str(file.parent) for file in directory.rglob("lib*.so*")})
    return ["env", f"LD_LIBRARY_PATH={':'.join(libraries)}"]


def _rsyslog(directory: Path) -> Sequence[str]:
    linked = _unpacked(RSYSLOG)
    (modules,) = (file.parent for file in RSYSLOG.rglob("omkafka.so"))
    program = str(RSYSLOG / "usr" / "sbin" / "rsyslogd")
    return [*linked, program, "-n", "-M", str(modules), "-i", str(directory / "pid"), "-f"]


def _syslog_ng(directory: Path) -> Sequence[str]:
    linked = _unpacked(SYSLOG_NG)
    own = {"-R": "persist", "-p": "pid", "-c": "control"}
    places = [part for flag, name in own.items() for part in (flag, str(directory / name))]
    (modules,) = (file.parent for file in SYSLOG_NG.rglob("libhttp.so"))
    program = str(SYSLOG_NG / "usr" / "sbin" / "syslog-ng")
    run = ["--foreground", "--no-caps", "--stderr", f"--module-path={modules}"]
    return [*linked, program, *run, *places, "-f"]


def _telegraf(_: Path) -> Sequence[str]:
    if not TELEGRAF.exists():
        pytest.skip("no Telegraf: `make torture` builds it where Go is installed")
    return [str(TELEGRAF), "--config"]


PROGRAMS = {"rsyslog": _rsyslog, "syslog-ng": _syslog_ng, "toml": _telegraf}
"""The command of each program, up to the name of its configuration; by the language of its recipe."""


@contextmanager
def sending(language: str, url: str, bootstrap: str, file: Path, directory: Path) -> Iterator[None]:
    """The program whose recipe is written in `language`, which sends the lines of `file`."""
    configuration, spool = directory / "configuration", directory / "spool"
    spool.mkdir()
    configuration.write_text(recipe(language, url=url, bootstrap=bootstrap, file=file, spool=spool))
    command = [*PROGRAMS[language](directory), str(configuration)]
    with (directory / "said").open("w") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            process.terminate()
            exit_code(process)


def values_of(gateway: RunningGateway, topic: str, partitions: int) -> Iterator[object]:
    """The value of each record of `topic`, which is JSON; the keys may not be."""
    kind = {"Accept": "application/vnd.kafka.binary.v2+json"}
    for partition in range(partitions):
        offset, end = 0, 1
        while offset < end:
            path = f"/topics/{topic}/partitions/{partition}/records"
            answer = gateway.client.get(path, params={"offset": offset}, headers=kind)
            yield from (json.loads(b64decode(record["value"])) for record in answer.json())
            offset, end = (int(answer.headers[name]) for name in ("Next-Offset", "High-Watermark"))
