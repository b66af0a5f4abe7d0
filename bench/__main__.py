"""Run the cells in turn with their peers, print a table of min / median / max and the ratios."""

import argparse
import platform
import statistics
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from bench import cells
from bench.cells import Figures
from bench.peers import Peers

Cell = Callable[[int], Figures]
PeerCell = Callable[[Peers, int], Figures]

CELLS: dict[str, tuple[Cell, tuple[PeerCell, ...]]] = {
    "JSON produce": (cells.json_produce, (cells.peer_java_produce, cells.peer_http_produce)),
    "Arrow produce": (cells.arrow_produce, (cells.peer_librdkafka_produce,)),
    "one record": (cells.one_record, ()),
    "freshness": (cells.freshness, ()),
    "Arrow fetch": (cells.arrow_fetch, (cells.peer_librdkafka_consume,)),
    "JSON fetch": (cells.json_fetch, ()),
    "memory": (cells.memory, ()),
    "open partition": (cells.open_partition, ()),
}
PEER_NAMES: dict[PeerCell, str] = {
    cells.peer_java_produce: "Kafka's producer-perf-test, acks=all",
    cells.peer_http_produce: "FastAPI + librdkafka before Kafka",
    cells.peer_librdkafka_produce: "librdkafka producer, acks=all",
    cells.peer_librdkafka_consume: "librdkafka consumer",
}


def main() -> None:
    arguments = _arguments()
    print(f"{platform.machine()}, Python {platform.python_version()}, {_processor()}\n", flush=True)
    print("| what | figure | min / median / max | ratio to the peer, min / median / max |")
    print("| --- | --- | ---: | ---: |", flush=True)
    with ExitStack() as stack:
        peers = None if arguments.no_peers else Peers(arguments.peers)
        wanted = {name: CELLS[name] for name in arguments.cells or CELLS}
        if peers is not None and any(rivals for _, rivals in wanted.values()):
            stack.enter_context(peers.broker())
        for name, (cell, rivals) in wanted.items():
            _measure(name, cell, rivals if peers is not None else (), peers, arguments)


def _measure(
    name: str, cell: Cell, rivals: tuple[PeerCell, ...], peers: Peers | None, arguments: argparse.Namespace
) -> None:
    """Run the cell and its rivals in turn, so that a machine whose speed drifts is fair to all."""
    ours: dict[str, list[float]] = defaultdict(list)
    theirs: dict[PeerCell, list[float]] = defaultdict(list)
    for _ in range(arguments.runs):
        for figure, value in cell(arguments.seconds).items():
            ours[figure].append(value)
        for rival in rivals:
            assert peers is not None
            theirs[rival].append(rival(peers, arguments.seconds)["records/s"])
    for figure, measured in ours.items():
        print(f"| {name} | {figure} | {_spread(measured)} | |", flush=True)
    for rival, measured in theirs.items():
        ratios = [mine / other for mine, other in zip(ours["records/s"], measured, strict=True)]
        print(f"| ↳ {PEER_NAMES[rival]} | records/s | {_spread(measured)} | {_spread(ratios)} |", flush=True)


def _spread(values: list[float]) -> str:
    return " / ".join(_number(f(values)) for f in (min, statistics.median, max))


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
    parser.add_argument("--peers", type=Path, default=Path("../shared/peers"), help="the peers' scripts")
    parser.add_argument("--no-peers", action="store_true", help="measure lakelog alone")
    return parser.parse_args()


if __name__ == "__main__":
    main()
