"""Soak lakelog on S3: `python -m bench.soak --minutes 60`.

Two gateways on a bucket of a real S3 server, HTTP clients and a Kafka client that write keyed records, a
consumer group, a Spark stream to a Delta table, and `lakelog maintain`. A gateway is killed each minute, and
the store is stopped every ten. In the end every record is looked for. Exit code 1 when one is lost or doubled
or fsck complains.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path

from bench.cells import scratch
from bench.soak.account import ANSWER_WITHIN_S, NO_ANSWER
from bench.soak.plan import Plan
from bench.soak.prices import PRICES, VERBS, Prices, read_prices
from bench.soak.soak import Result, soak

_BROKEN = 1


def main() -> int:
    """The exit code."""
    parser = _parser()
    arguments = parser.parse_args()
    try:
        plan = Plan(arguments.minutes, arguments.records_per_second)
        prices = read_prices(arguments.prices)
    except ValueError as error:
        parser.error(str(error))
    if arguments.keep is not None:
        if arguments.keep.exists():
            parser.error(f"--keep {arguments.keep} exists; name a directory that is to be made")
        arguments.keep.mkdir(parents=True)
    with scratch() if arguments.keep is None else nullcontext(arguments.keep.resolve()) as directory:
        result = soak(plan, directory)
    return report(plan, result, prices)


def report(plan: Plan, result: Result, prices: Prices) -> int:
    """Print it as a table, with what is wrong; returns the exit code."""
    print("| what | measured |\n| --- | ---: |")
    for what, measured in _rows(plan, result, prices):
        print(f"| {what} | {measured} |")
    print()
    for finding in (*result.log.examples, *result.delta.examples, *result.fsck):
        print(f"- {finding}")
    print("BROKEN: " + ", ".join(result.broken) if result.broken else "nothing is lost, nothing is doubled")
    return _BROKEN if result.broken else 0


def _rows(plan: Plan, result: Result, prices: Prices) -> Iterator[tuple[str, str]]:
    yield from _records(plan, result)
    yield from _answers(result)
    yield from _memory(result)
    yield from _costs(result, prices)


def _records(plan: Plan, result: Result) -> Iterator[tuple[str, str]]:
    kills = sum(strike.gateway is not None for strike in plan.strikes())
    yield "length, s", f"{result.seconds:,.0f}"
    yield "kills of a gateway", f"{kills}"
    yield "stops of the store", f"{len(plan.strikes()) - kills}"
    yield "records acknowledged", f"{result.acknowledged:,}"
    yield "records a second", f"{result.acknowledged / result.seconds:,.0f}"
    yield "lost", f"{result.log.lost:,}"
    yield "doubled", f"{result.log.doubled:,}"
    yield "refused for good", _counts(result.failures)
    yield "missed by the group", f"{result.missed:,}"
    yield "read again by the group", f"{result.read_again:,}"
    yield "lost in Spark's table", f"{result.delta.lost:,}"
    yield "doubled in Spark's table", f"{result.delta.doubled:,}"
    yield "micro-batches", f"{result.micro_batches:,}"
    yield "failures of the Spark query", f"{result.query_failures:,}"
    yield "merges", f"{result.merges:,}"
    yield "problems that fsck found", f"{len(result.fsck):,}"
    yield "programs that ended by themselves", _counts(result.deaths)


def _answers(result: Result) -> Iterator[tuple[str, str]]:
    found = result.availability
    yield "HTTP requests", f"{result.with_windows.requests:,}"
    yield f"… answered 2xx within {ANSWER_WITHIN_S:g} s, windows included", f"{result.with_windows.share:.4%}"
    yield "failover windows, s", f"{result.windows_s:,.1f}"
    yield "requests outside of them", f"{found.requests:,}"
    yield f"… answered 2xx within {ANSWER_WITHIN_S:g} s", f"{found.share:.4%}"
    yield "… the others", _counts({_heard(status): count for status, count in found.others.items()})
    median, most, longest = (f"{took_s * 1_000:,.0f}" for took_s in found.took_s)
    yield "… ms until the answer: p50, p99, longest", f"{median}, {most}, {longest}"


def _heard(status: int) -> str:
    if status == NO_ANSWER:
        return "no answer"
    return f"{status}" if status >= 300 else f"{status}, but late"


def _memory(result: Result) -> Iterator[tuple[str, str]]:
    for number, samples in enumerate(zip(*result.memory_mb, strict=True)):
        yield f"memory of gateway {number + 1}, MB, each minute", " ".join(f"{mb:.0f}" for mb in samples)
    level = result.level
    if level is None:
        yield "memory after the first quarter", "takes four minutes to say"
    else:
        yield "memory, MB, second and last quarter", f"{level.second:.0f}, {level.last:.0f}"
        yield "growth between them", f"{level.growth:+.1%}"


def _costs(result: Result, prices: Prices) -> Iterator[tuple[str, str]]:
    millions = result.acknowledged / 1e6
    for verb in VERBS:
        if result.requests[verb]:
            yield f"S3 requests, {verb}", f"{result.requests[verb]:,}"
    if not millions:
        return
    yield "S3 requests a million records", f"{result.requests.total() / millions:,.0f}"
    yield "USD a million records", f"{prices.usd(result.requests) / millions:.4f}"
    yield "prices", f"{prices.source} ({prices.year})"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{what}: {count:,}" for what, count in sorted(counts.items())) or "0"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    plan = Plan()
    parser.add_argument("--minutes", type=int, default=plan.minutes, help=f"(default {plan.minutes})")
    parser.add_argument(
        "--records-per-second",
        type=float,
        default=plan.records_per_s,
        help=f"of all clients (default {plan.records_per_s:g})",
    )
    parser.add_argument(
        "--prices", type=Path, default=PRICES, help=f"a table as in {PRICES.name}, which is the default"
    )
    parser.add_argument("--keep", type=Path, help="a new directory for tables and logs, which stays")
    return parser


if __name__ == "__main__":
    sys.exit(main())
