"""Transactions of 100 records over 4 partitions, with the offset of what they were made of."""

import json
import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from bench import load
from bench.cells import PARTITIONS, Figures, scratch
from bench.gateway import Gateway, wait_until
from bench.member import Member
from bench.spark_load import TOPIC, fill
from log_tables.clock import SystemClock, timer

CLIENTS = 8
MANY = 16
RECORDS = 100
COPY = "copy"
_HELD = 50_000
"""Records of each partition of TOPIC: more than there are transactions."""

_WARM_S = 3.0
"""By then what a partition may commit at once after a rest is used up."""

_Send = Callable[[int], None]
"""Sends the n-th transaction of a client."""


def paced(seconds: int) -> Figures:
    """One client; 8 of as many groups; 8 and 16 members of one group: in closed loops, default settings."""
    return _transactions(seconds)


def unpaced(seconds: int) -> Figures:
    """As `paced`, but without linger and commit-rate bound."""
    return _transactions(
        seconds, "--set", "linger_ms=0", "--set", "commits_per_second_max=0", "--set", "commits_cores_max=0"
    )


def _transactions(seconds: int, *options: str) -> Figures:
    with scratch() as directory:
        fill(str(directory / "data"), MANY, 1, _HELD)
        with Gateway(directory / "data", *options) as gateway:
            gateway.create_topic(COPY, PARTITIONS)
            loads = {
                "one client": [_client(gateway, "alone", 0)],
                "8 groups": [_client(gateway, f"group-{lane}", lane) for lane in range(CLIENTS)],
                "8 members": _members(gateway, CLIENTS),
                "16 members": _members(gateway, MANY),
            }
            figures: Figures = {}
            sent = 0
            for name, clients in loads.items():
                rate, took, count = _drive(clients, seconds)
                figures[f"{name}: transactions/s"] = rate
                figures[f"{name}: p50 ms"] = statistics.median(took) * 1e3
                sent += count
            held = gateway.end_offset(COPY, PARTITIONS)
    if held != sent * RECORDS:
        raise RuntimeError(
            f"{sent} transactions of {RECORDS} records were answered, {held} records are there"
        )
    return figures


def _client(gateway: Gateway, group: str, lane: int) -> _Send:
    """Somebody who is no member of its group, and says where to go on."""
    caller = Member(gateway.url, group, "none")
    return partial(_send, caller, f"/consumers/{group}/transactions", lane, 1)


def _members(gateway: Gateway, count: int) -> list[_Send]:
    """The senders of one group: each has its share of the input, and says which record was the last."""
    members = [Member(gateway.url, f"{count}-together", f"member-{index}") for index in range(count)]
    for member in members:
        member.create("binary")
        member.subscribe(TOPIC)

    def shared_out() -> bool:
        for member in members:
            member.poll(0)
        return all(len(member.assignment()) == MANY // count for member in members)

    wait_until(shared_out, "each member owns its share")
    return [
        partial(_send, member, f"{member.path}/transactions", min(member.assignment()), 0)
        for member in members
    ]


def _send(caller: Member, path: str, lane: int, ahead: int, number: int) -> None:
    """As the Python client does it: with a retry key, and the one before is not needed any more."""
    offsets = [{"topic": TOPIC, "partition": lane, "offset": number + ahead}]
    frame = json.dumps({"offsets": offsets, "forget": [f"{lane}-{number - 1}"]}).encode()
    caller.call("POST", path, frame[:-1] + b', "records": ' + _RECORDS_JSON + b"}", f"{lane}-{number}")


_RECORDS_JSON = json.dumps(
    [
        {"topic": COPY, "partition": index % PARTITIONS, "value": value.decode()}
        for index, value in enumerate(load.values(RECORDS))
    ]
).encode()


def _drive(clients: Sequence[_Send], seconds: int) -> tuple[float, list[float], int]:
    """Each client in a thread of its own: transactions a second, how long each took, and how many in all.

    The first two leave out the warm-up.
    """
    clock = SystemClock()
    begin = clock.monotonic() + _WARM_S
    end = begin + seconds

    def run(send: _Send) -> tuple[list[float], int]:
        took, number = [], 0
        while (now := clock.monotonic()) < end:
            asked = timer()
            send(number)
            number += 1
            if now >= begin:
                took.append(timer() - asked)
        return took, number

    with ThreadPoolExecutor(len(clients)) as pool:
        lanes = [*pool.map(run, clients)]
    took = [each for lane, _ in lanes for each in lane]
    return len(took) / (clock.monotonic() - begin), took, sum(count for _, count in lanes)
