"""`lakelog store`: whether a directory or a bucket can hold a log."""

import queue
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from lakelog.cli.common import CommandGroup, Json, console, print_json
from log_tables.clock import SystemClock, timer
from log_tables.errors import InvalidArgument, LakelogError, StoreUnavailable

if TYPE_CHECKING:
    from log_tables.store.requirements import RequirementResult
    from log_tables.store.store import Store

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)

TIDY_S = 10.0
"""How long a check that was interrupted may take to delete its objects."""


@app.callback()
def _store() -> None:
    """With a callback, one command stays a command of its own."""


@app.command()
def check(
    url: Annotated[str, typer.Argument(metavar="URL", help="A directory, or an s3://, gs:// or az:// URL.")],
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="How long the store may take for all of it.")
    ] = 60.0,
    json: Json = False,
) -> None:
    """Try whether a store does what a log needs. Exit code 1 when it does not, and why.

    The check puts small objects below URL/store-check-…, and deletes them. A log may be there already, and in
    use. The options of the store are the setting store_options, or the store's own variables.
    """
    results: list[RequirementResult] = []
    try:
        for result in _results(url, timeout):
            results.append(result)
            if not json:
                _print(result)
    except LakelogError:
        if json and results:
            _print_json(url, False, results)
        raise
    passed = not any(result.problem for result in results)
    if json:
        _print_json(url, passed, results)
    else:
        console().print(f"PASS: {url} can hold a log" if passed else f"FAIL: {url} cannot hold a log")
    if not passed:
        raise typer.Exit(1)


def _print_json(url: str, passed: bool, results: "list[RequirementResult]") -> None:
    print_json({"url": url, "passed": passed, "requirements": [each._asdict() for each in results]})


def _print(result: "RequirementResult") -> None:
    if not result.problem:
        console().print(f"PASS  {result.requirement}")
        return
    console().print(f"FAIL  {result.requirement}: {result.problem}")
    console().print(f"      {result.advice}")


def _results(url: str, timeout_s: float) -> Iterator["RequirementResult"]:
    """Each result as it is found. Raises InvalidArgument, InvalidConfig; StoreUnavailable for a store that
    cannot be reached, or not in time.
    """
    from ingest.settings import load_settings
    from log_tables.store.requirements import check_store
    from log_tables.store.store import open_store

    if url.lower().startswith("memory:"):
        raise InvalidArgument(f"{url} is the memory of one process; name a directory or a bucket")
    options = load_settings(None, data=url).store_options

    def connect() -> "Store":
        return open_store(url, options, create=False)

    over = threading.Event()
    found: queue.Queue[RequirementResult | BaseException | None] = queue.Queue()

    def run() -> None:
        try:
            for result in check_store(connect, SystemClock(), over.is_set):
                found.put(result)
            found.put(None)
        except BaseException as error:  # noqa: BLE001 -- it is raised by the thread that waits
            found.put(error)

    # A thread that nobody waits for at the end: a call of a store that hangs cannot be ended.
    checking = threading.Thread(target=run, daemon=True)
    checking.start()
    deadline = timer() + timeout_s
    try:
        while (result := _next(found, deadline)) is not None:
            if isinstance(result, BaseException):
                raise result
            yield result
    except (StoreUnavailable, TimeoutError) as error:
        why = error.message if isinstance(error, LakelogError) else f"it took longer than {timeout_s:g} s"
        raise StoreUnavailable(f"{url} could not be checked: {why}") from None
    finally:
        over.set()
        checking.join(min(TIDY_S, timeout_s))


def _next(
    found: "queue.Queue[RequirementResult | BaseException | None]", deadline: float
) -> "RequirementResult | BaseException | None":
    """Raises TimeoutError."""
    try:
        return found.get(timeout=max(0.0, deadline - timer()))
    except queue.Empty:
        raise TimeoutError from None
