"""The reports of the processes that replicate a root to a standby (process_report.py), in the root itself."""

import msgspec


class StandbyReport(msgspec.Struct, frozen=True):
    """A process that replicates to the root at `target`, as it sees itself.

    `number` grows with each report. The standby has all that was there `lag_s` seconds ago, and lacks at
    least so many `commits`, `records` and `bytes` of the tables that this process copies. It is of one moment
    if `is_level`. `tables` is how many tables the process copies, `copied_bytes` what it has put since it
    began. `trouble` says what keeps it; empty while nothing does.
    """

    process: str
    number: int
    target: str
    host: str = ""
    pid: int = 0
    is_level: bool = False
    lag_s: float = 0.0
    commits: int = 0
    records: int = 0
    bytes: int = 0
    tables: int = 0
    copied_bytes: int = 0
    trouble: str = ""
