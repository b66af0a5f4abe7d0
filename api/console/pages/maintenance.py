"""The pages of maintenance: what its runs have done, and what the next one would do."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query
from fastapi.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from api.console.command_results import MaintenancePlan, maintenance_plan
from api.console.page import ItemPage, paged, render
from api.console.page_route import PageRoute
from api.gateway import Gateway
from api.requests.access import Asked
from api.requests.child_process import commands
from api.requests.route_gateway import Here
from coordinator.access.caller import Caller
from ingest.merge_debt import PartitionDebt
from log_tables.cluster.admin.run_log import JobRun, recent_runs
from log_tables.cluster.topic import is_internal
from log_tables.errors import NotFound

router = APIRouter(prefix="/console/maintenance", include_in_schema=False, route_class=PageRoute)

ROWS_READ = 2_000
"""Rows of the log of runs that a page reads; a run has one for each partition that a job has changed."""

RUNS_SHOWN = 50
ROWS_OF_RUN_MAX = 20_000
ERROR_CHARS = 20_000
"""Characters of an error that the page of its run shows; SQL shows all."""

PLAN_LIMIT_S = 120.0
_SEEN_RUNS = 5


class RunSummary(NamedTuple):
    """The result of one run, in all partitions that the reader may see. `first` is the offset of its first
    row; `ended_ms` is about when its last job has, by the time that its jobs took.
    """

    run: str
    first: int
    started_ms: int
    seconds: float
    jobs: Sequence[str]
    partitions: int
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    errors: Sequence[JobRun]
    whole: bool


@router.get("")
async def maintenance(
    request: Request,
    here: Here,
    asked: Asked,
    before: Annotated[int | None, Query(ge=0)] = None,
    plan: Annotated[int, Query(ge=0, le=1)] = 0,
    page: Annotated[int, Query(ge=1)] = 1,
) -> Response:
    """The runs, newest first; with `plan` what the next one would do."""
    rows, log_start = await run_in_threadpool(_rows, here, before, ROWS_READ)
    due = await _plan(request, asked) if plan else None
    runs = [*_runs(rows, log_start, asked)]
    oldest = runs[-1].first if runs else (rows[0][0] if rows else log_start)
    older = oldest if oldest > log_start else None
    steps: ItemPage[object] = paged(() if due is None else due.steps, page)
    values = {
        "is_internal": is_internal,
        "runs": runs,
        "older": older,
        "before": before,
        "plan": due,
        "steps": steps,
        "between_s": _usual_s([run.started_ms for run in runs]),
        "interval_ms": here.settings.maintain_interval_ms,
        "debt": max(_debts(here, asked), key=lambda debt: debt.files, default=None),
    }
    return render(request, "maintenance.html", values, asked)


@router.get("/runs/{run}")
async def run(
    request: Request,
    here: Here,
    asked: Asked,
    run: str,
    begin: Annotated[int, Query(alias="from", ge=0)] = 0,
    page: Annotated[int, Query(ge=1)] = 1,
) -> Response:
    """The rows of one run, which begin at the offset `begin` of their log. Raises NotFound."""
    end = begin + ROWS_OF_RUN_MAX
    rows, log_start = await run_in_threadpool(_rows, here, end, ROWS_OF_RUN_MAX)
    found = [(offset, row) for offset, row in rows if row.run == run and offset >= begin]
    summary = next(iter(_runs(found, log_start, asked)), None)
    if summary is None:
        raise NotFound(f"there is no run {run[:40]!r} that you may see; list them at /console/maintenance")
    shown: ItemPage[JobRun] = paged([row for _, row in found if _is_visible(row.topic, asked)], page)
    values = {"run": summary, "rows": shown, "is_internal": is_internal, "error_chars": ERROR_CHARS}
    return render(request, "maintenance_run.html", values, asked)


def _rows(here: Gateway, before: int | None, count: int) -> tuple[list[tuple[int, JobRun]], int]:
    """`recent_runs`. The first run makes their topic, of which this gateway may not know yet."""
    here.cluster.refresh()
    return recent_runs(here.cluster, before, count)


def _debts(here: Gateway, asked: Caller) -> list[PartitionDebt]:
    return [debt for debt in here.writer.debt.found if _is_visible(debt.topic, asked)]


async def _plan(request: Request, asked: Caller) -> MaintenancePlan:
    words = ["maintain", "--dry-run", "--json"]
    found = maintenance_plan(await commands(request).run(request, words, PLAN_LIMIT_S))
    return found._replace(steps=[step for step in found.steps if _is_visible(step.topic, asked)])


def _is_visible(topic: str, asked: Caller) -> bool:
    """Whether a row is shown: internal topics are of the cluster, which the reader may describe."""
    return is_internal(topic) or asked.describes(topic)


def _runs(rows: Sequence[tuple[int, JobRun]], log_start: int, asked: Caller) -> Sequence[RunSummary]:
    """The runs, newest first. The oldest of a page that does not begin with the log may lack rows; it is
    left to the next page, unless it is alone.
    """
    grouped: dict[str, list[tuple[int, JobRun]]] = {}
    for offset, row in rows:
        grouped.setdefault(row.run, []).append((offset, row))
    runs = [*grouped.values()]
    begins = not rows or rows[0][0] <= log_start
    if not begins and len(runs) > 1:
        runs = runs[1:]
    made = [_summary(seen, begins or len(grouped) > 1) for run in runs if (seen := _visible(run, asked))]
    return made[::-1][:RUNS_SHOWN]


def _visible(rows: Sequence[tuple[int, JobRun]], asked: Caller) -> list[tuple[int, JobRun]]:
    return [(offset, row) for offset, row in rows if _is_visible(row.topic, asked)]


def _summary(rows: Sequence[tuple[int, JobRun]], whole: bool) -> RunSummary:
    found = [row for _, row in rows]
    jobs: dict[str, float] = {}
    for row in found:
        jobs[row.job] = max(jobs.get(row.job, 0.0), row.seconds)
    return RunSummary(
        run=found[0].run,
        first=rows[0][0],
        started_ms=found[0].started_ms,
        seconds=sum(jobs.values()),
        jobs=[*jobs],
        partitions=len({(row.topic, row.partition) for row in found}),
        files_before=sum(row.files_before for row in found),
        files_after=sum(row.files_after for row in found),
        bytes_before=sum(row.bytes_before for row in found),
        bytes_after=sum(row.bytes_after for row in found),
        errors=[row for row in found if row.error],
        whole=whole,
    )


def _usual_s(started: Sequence[int]) -> float | None:
    """The middle of the times between the newest runs; None of fewer than three. Runs that change nothing
    leave no row, so it is an upper bound.
    """
    times = sorted(started, reverse=True)[: _SEEN_RUNS + 1]
    between = sorted(later - earlier for later, earlier in pairwise(times))
    return between[len(between) // 2] / 1000 if len(between) > 1 else None
