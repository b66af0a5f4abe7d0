"""The files of one partition over a simulated day: what commits and merges leave behind, and when it goes.

Real tables, the real jobs every five minutes and the gateway's own duties, on a made-up clock as in
`bench/steady.py`. A real day of 20 commits a second is 1.7 million; a tenth of it leaves a tenth of the
files, and is enough for each run of maintenance to vacuum (TIDY_TOMBSTONES).
"""

import sys

from bench import steady
from bench.cells import Figures, scratch

HOURS = 24
STEP_MS = 500
AT_20 = 10
"""How many times as many commits 20 a second are."""
_ROUNDS = 3_600_000 // steady.ROUND_MS


def day(_seconds: int) -> Figures:
    """2 commits/s for 24 simulated hours, all jobs every 5 minutes; the curve: stderr."""
    print(
        "\n| hour | live segments | replaced segments | files of the log | all | all at 20 commits/s |\n"
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
        file=sys.stderr,
    )
    most: list[int] = []
    hour: list[steady.Round] = []
    with scratch(in_memory=True) as directory:
        for one in steady.life(directory, STEP_MS, HOURS):
            hour.append(one)
            if len(hour) == _ROUNDS:
                most.append(_told(len(most) + 1, hour))
                hour.clear()
    return {"files, most": max(most), "files at 20 commits/s, most": max(most) * AT_20}


def _told(number: int, hour: list[steady.Round]) -> int:
    """Print the most of each kind of file in an hour; returns the most of all at once."""
    live, replaced = max(one.live for one in hour), max(one.files - one.live for one in hour)
    log, most = max(one.log_files for one in hour), max(one.files + one.log_files for one in hour)
    counts = (number, live, replaced, log, most, most * AT_20)
    print(f"| {' | '.join(f'{n:,}' for n in counts)} |", file=sys.stderr, flush=True)
    return most
