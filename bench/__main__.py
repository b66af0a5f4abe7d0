"""Run the cells in turn with their peers, print a table of min / median / max and the ratios."""

import argparse
import platform
import statistics
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench import (
    acls,
    beside,
    cells,
    clients,
    console,
    credentials,
    crowd,
    day,
    groups,
    kafka,
    keyed,
    maintenance,
    mirror,
    quotas,
    replicate,
    schemas,
    secured,
    several,
    spark,
    spark_sink,
    sql,
    steady,
    streams,
    topic_table,
    transactions,
    workers,
)
from bench.contest import OURS, Contest, Results, Rivals, Scale, contest
from bench.peers import Peers

JAVA_PRODUCE: Rivals = {"Kafka's producer-perf-test, acks=all": cells.peer_java_produce}
HTTP_PRODUCE: Rivals = {"FastAPI + librdkafka before Kafka": cells.peer_http_produce}
LIBRDKAFKA_PRODUCE: Rivals = {"librdkafka producer, acks=all": cells.peer_librdkafka_produce}
LIBRDKAFKA_CONSUME: Rivals = {"librdkafka consumer": cells.peer_librdkafka_consume}

CELLS: dict[str, Contest] = {
    "JSON produce": contest(cells.json_produce, JAVA_PRODUCE | HTTP_PRODUCE),
    "values produce": contest(cells.values_produce, HTTP_PRODUCE),
    "keyed values produce": contest(cells.keyed_values_produce, HTTP_PRODUCE),
    "Arrow produce": contest(cells.arrow_produce, LIBRDKAFKA_PRODUCE),
    **{f"keyed, {case}": case.contest() for case in keyed.CASES},
    "keyed, over partitions": contest(keyed.curve),
    "group next to 64 partitions": contest(crowd.crowd),
    **clients.CELLS,
    **kafka.CELLS,
    **streams.CELLS,
    **mirror.CELLS,
    **replicate.CELLS,
    **schemas.CELLS,
    "one record": contest(cells.one_record),
    "freshness": contest(cells.freshness),
    "lag of the table over a topic": contest(topic_table.lag),
    "Arrow fetch": contest(cells.arrow_fetch, LIBRDKAFKA_CONSUME),
    "JSON fetch": contest(cells.json_fetch),
    "memory": contest(cells.memory),
    "one-row commit": contest(cells.commit_cpu),
    "open partition": contest(cells.open_partition),
    "group consumption, JSON": contest(groups.json_consumption),
    "group consumption, Arrow": contest(groups.arrow_consumption),
    "group tail": contest(groups.tail),
    "offset commits": contest(groups.commits),
    "rebalance": contest(groups.rebalance),
    "restart with groups": contest(groups.restart),
    "Spark batch read": Contest(spark.batch_read, needs_broker=True),
    "Spark pruned read": Contest(spark.pruned_read, needs_broker=False),
    "Spark stream": Contest(spark.stream, needs_broker=True),
    "Spark planning": Contest(spark.planning, needs_broker=False),
    "Spark view planning": Contest(spark.view_planning, needs_broker=False),
    "Spark freshness": Contest(spark.freshness, needs_broker=True),
    "Spark point lookup": Contest(spark.point_lookup, needs_broker=False),
    "Spark sink": Contest(spark_sink.sink, needs_broker=True),
    "segment compaction": Contest(maintenance.merge, needs_broker=False),
    "segment compaction, 64 partitions": Contest(maintenance.merge_many, needs_broker=False),
    "batch read after compaction": Contest(maintenance.read, needs_broker=False),
    "retype": Contest(maintenance.retyped, needs_broker=False),
    "key compaction": Contest(maintenance.clean, needs_broker=False),
    "first maintenance run": Contest(maintenance.first_run, needs_broker=False),
    "retention": contest(maintenance.expire),
    "SQL over flights": Contest(sql.grouped, needs_broker=False),
    "size of flights": Contest(sql.sizes, needs_broker=False),
    "files of a predicate": Contest(sql.selective, needs_broker=False),
    "produce with columns": Contest(sql.produce, needs_broker=False),
    "produce and fetch with security": Contest(secured.secured, needs_broker=False),
    **{name: contest(cell) for name, cell in console.CELLS.items()},
    "produce with open consoles": Contest(console.open_consoles, needs_broker=False),
    "byte quotas": Contest(quotas.byte_quotas, needs_broker=False),
    "credentials": Contest(credentials.credentials, needs_broker=False),
    "authorization": Contest(acls.decisions, needs_broker=False),
    "steady state": contest(steady.steady),
    "files of a day": contest(day.day),
    "two gateways, JSON produce": Contest(several.json_gateways, needs_broker=False),
    "two gateways, Arrow produce": Contest(several.arrow_gateways, needs_broker=False),
    "two workers, JSON produce": Contest(several.json_workers, needs_broker=False),
    "two workers, Arrow produce": Contest(several.arrow_workers, needs_broker=False),
    **{f"workers, {case}": contest(partial(workers.curve, case)) for case in workers.CASES},
    "forwarded record": contest(several.forward),
    "failover": contest(several.failover),
    "transactions": contest(transactions.paced),
    "transactions, unpaced": contest(transactions.unpaced),
    "produce beside jobs": Contest(beside.beside, needs_broker=False),
    "produce beside jobs, unpaced": Contest(beside.beside_unpaced, needs_broker=False),
}


def main() -> None:
    arguments = _arguments()
    print(f"{platform.machine()}, Python {platform.python_version()}, {_processor()}\n", flush=True)
    print("| what | figure | min / median / max | ratio to the peer, min / median / max |")
    print("| --- | --- | ---: | ---: |", flush=True)
    with ExitStack() as stack:
        peers = None if arguments.no_peers else Peers(arguments.peers)
        wanted = {name: CELLS[name] for name in arguments.cells or CELLS}
        if peers is not None and any(cell.needs_broker for cell in wanted.values()):
            stack.enter_context(peers.broker())
        scale = Scale(arguments.seconds, arguments.records)
        for name, cell in wanted.items():
            # In turn, so that a machine whose speed drifts is fair to all.
            _report(name, [cell.run(peers, scale) for _ in range(arguments.runs)])


def _report(name: str, runs: list[Results]) -> None:
    """Our figures, then each peer's with the ratio of ours to it, run by run."""
    for contender, figures in runs[0].items():
        title = name if contender == OURS else f"↳ {contender}"
        for figure in figures:
            measured = [run[contender][figure] for run in runs]
            ratios = [] if contender == OURS else _ratios(runs, figure, measured)
            print(f"| {title} | {figure} | {_spread(measured)} | {_spread(ratios)} |", flush=True)


def _ratios(runs: list[Results], figure: str, measured: list[float]) -> list[float]:
    """Ours to `measured`, run by run; none for a figure that ours does not have."""
    return [
        run[OURS][figure] / other for run, other in zip(runs, measured, strict=True) if figure in run[OURS]
    ]


def _spread(values: list[float]) -> str:
    return " / ".join(_number(f(values)) for f in (min, statistics.median, max)) if values else ""


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _processor() -> str:
    info = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in info if line.startswith("model name")]
    return f"{len(names)} × {names[0]}" if names else "processor unknown"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("cells", nargs="*", choices=[*CELLS, []], help="which cells (default: all)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each cell (default 3)")
    parser.add_argument("--seconds", type=int, default=5, help="length of a load run (default 5)")
    parser.add_argument(
        "--records", type=int, default=5_000_000, help="of the Spark cells (default 5,000,000)"
    )
    parser.add_argument("--peers", type=Path, default=Path("../shared/peers"), help="the peers' scripts")
    parser.add_argument("--no-peers", action="store_true", help="measure lakelog alone")
    return parser.parse_args()


if __name__ == "__main__":
    main()
