"""A group next to 64 partitions that are written to without a pause: its polls, its commits, and a stop."""

import json
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from bench import load
from bench.cells import Figures, body_file, scratch
from bench.gateway import Gateway
from bench.keyed import WARM_S, Case
from bench.member import Member
from log_tables.clock import timer
from log_tables.layout import log_directory, partition_directory, topic_directory

LOAD = Case(500, 64, 16)
BUSY, QUIET = "busy", "quiet"


def crowd(seconds: int) -> Figures:
    """One member polls and commits in a closed loop while wrk writes; then SIGTERM comes under the same load.

    `claims` are those of the busy partitions while wrk wrote: each is leadership that was lost.
    """
    with scratch() as directory, ThreadPoolExecutor(1) as pool, Gateway(directory / "data") as gateway:
        body = body_file(directory, load.keyed_bodies(LOAD.records))
        gateway.create_topic(BUSY, LOAD.partitions)
        gateway.create_topic(QUIET, 1)
        _write(gateway, body, WARM_S)
        before = _claims(gateway.data)
        writing = pool.submit(_write, gateway, body, seconds)
        polls, commits = _consume(gateway.url, writing)
        figures = {
            "records/s": LOAD.figures(writing.result())["records/s"],
            **_spread("poll", polls),
            **_spread("commit", commits),
            "claims": _claims(gateway.data) - before,
        }
        refused = pool.submit(_write, gateway, body, WARM_S)
        _consume(gateway.url, refused, most=10)
        figures["stop s"] = gateway.stop()
        refused.exception()  # wrk's requests after the stop had no answer
    return figures


def _write(gateway: Gateway, body: Path, seconds: int) -> load.Measured:
    url = f"{gateway.url}/topics/{BUSY}"
    return load.post(url, body, load.JSON, LOAD.connections, seconds, in_turn=True)


def _consume(
    url: str, writing: Future[load.Measured], most: int | None = None
) -> tuple[list[float], list[float]]:
    """The seconds of each poll and of each commit of a member until `writing` is done, `most` at most.

    Before each poll one record is produced for it.
    """
    polls: list[float] = []
    commits: list[float] = []
    sender, member = Member(url, "none", "none"), Member(url, "readers", f"reader-{most}")
    member.create()
    member.subscribe(QUIET)
    while not writing.done() and len(polls) != most:
        sender.call("POST", f"/topics/{QUIET}/partitions/0", load.json_body(1))
        begin = timer()
        rows = member.poll(0)
        polls.append(timer() - begin)
        if rows:
            place = {"topic": QUIET, "partition": 0, "offset": rows[-1].offset}
            begin = timer()
            member.commit(json.dumps({"offsets": [place]}).encode())
            commits.append(timer() - begin)
    member.call("DELETE", member.path)
    return polls, commits


def _spread(what: str, seconds: list[float]) -> Figures:
    ordered = sorted(each * 1e3 for each in seconds)
    return {
        f"{what} p50 ms": ordered[len(ordered) // 2],
        f"{what} p99 ms": ordered[int(len(ordered) * 0.99)],
    }


def _claims(root: Path) -> int:
    """The number of claims of busy partitions, in the commits that were not yet cleaned."""
    directories = (partition_directory(topic_directory(BUSY), index) for index in range(LOAD.partitions))
    logs = (root / log_directory(directory) for directory in directories)
    return sum('"CLAIM"' in file.read_text() for log in logs for file in log.glob("*.json"))
