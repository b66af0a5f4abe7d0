"""A cell of the table: ours and the peers, measured in turn within one run."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.cells import Figures
from bench.peers import Peers

OURS = "lakelog"
Results = dict[str, Figures]
"""One run: the figures of each contender by its name, ours (`OURS`) first."""
Rivals = dict[str, Callable[[Peers, int], Figures]]


@dataclass(frozen=True, slots=True)
class Scale:
    """How long a load runs, and how many records the Spark cells read."""

    seconds: int
    records: int


@dataclass(frozen=True, slots=True)
class Contest:
    """`run` measures everybody once; without peers it leaves out those that need the Kafka broker."""

    run: Callable[[Peers | None, Scale], Results]
    needs_broker: bool


def contest(cell: Callable[[int], Figures], rivals: Rivals | None = None) -> Contest:
    """A cell that takes the seconds of a load, beside rivals, by their names, that load the broker."""

    def run(peers: Peers | None, scale: Scale) -> Results:
        results = {OURS: cell(scale.seconds)}
        if peers is not None:
            results |= {name: rival(peers, scale.seconds) for name, rival in (rivals or {}).items()}
        return results

    return Contest(run, bool(rivals))
