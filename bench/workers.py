"""`lakelog serve --workers` with 1, 2 and 4 workers: what more processes give, and what a record costs then.

On a machine with fewer cores than workers and a client the throughput says little. The processor time of a
record says what more cores would give: as many workers as cost no more a record than one do so much more.
"""

import resource

from bench import load
from bench.cells import Figures, body_file, scratch
from bench.gateway import Gateway, gateways
from bench.keyed import WARM_S, Case

COUNTS = (1, 2, 4)
CASES = (Case(1, 4, 64), Case(1, 16, 256), Case(10, 4, 64), Case(10, 16, 256), Case(500, 64, 16))
TOPIC = "workers"


def curve(case: Case, seconds: int) -> Figures:
    """Records a second, and processor time of a record, by the number of workers; and that of wrk."""
    found: Figures = {}
    for count in COUNTS:
        found |= {f"{count} workers: {name}": each for name, each in _measure(case, count, seconds).items()}
    return found


def _measure(case: Case, workers: int, seconds: int) -> Figures:
    with scratch() as directory, gateways(directory / "data", 1, workers=workers) as (gateway,):
        gateway.create_topic(TOPIC, case.partitions)
        body = body_file(directory, load.keyed_bodies(case.records))
        url = f"{gateway.url}/topics/{TOPIC}"
        load.post(url, body, load.JSON, case.connections, WARM_S, in_turn=True)
        held, spent, own = _held(gateway, case), gateway.cpu_seconds, _of_children()
        measured = load.post(url, body, load.JSON, case.connections, seconds, in_turn=True)
        spent, own = gateway.cpu_seconds - spent, _of_children() - own
        records = measured.requests * case.records
        kept = _held(gateway, case) - held
    if kept < records:
        raise RuntimeError(f"{records} records were acknowledged, {kept} are there")
    return {
        "records/s": records / measured.seconds,
        "p50 ms": measured.p50_ms,
        "p99 ms": measured.p99_ms,
        "processor µs a record": spent / kept * 1e6,
        "cores used": spent / measured.seconds,
        "cores used by wrk": own / measured.seconds,
    }


def _held(gateway: Gateway, case: Case) -> int:
    return gateway.end_offset(TOPIC, case.partitions)


def _of_children() -> float:
    """Processor seconds of the children that have ended: these are load generators."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
