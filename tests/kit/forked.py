"""`lakelog` as a process that is forked from one that has imported it: imports are most of a start."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from tempfile import TemporaryFile

from lakelog.testing.forked import ForkedProcess
from tests.kit.support import WAIT_S

_IMPORTED = (
    "aiohttp",
    "api.process.workers",
    "jobs.maintenance",
    "jobs.mirror.runner",
    "lakelog.cli.commands.serve",
    "lakelog.cli.maintainer",
)


class ForkedLakelog(ForkedProcess):
    """`python -m lakelog` with these words."""

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str] | None = None, errors: int = 2
    ) -> None:
        """`errors` is a file for what it says to stderr."""
        with open(os.devnull, "rb") as nothing:
            super().__init__("lakelog", words, environment, (nothing.fileno(), errors), _IMPORTED)


def run_lakelog(
    *words: str, environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run `lakelog` with these words; the result is as that of `subprocess.run`."""
    with TemporaryFile() as errors:
        process = ForkedLakelog(words, environment, errors.fileno())
        with process.stdout:
            said, code = process.stdout.read(), process.wait(WAIT_S)
        errors.seek(0)
        return subprocess.CompletedProcess(process.args, code, said, errors.read().decode())
