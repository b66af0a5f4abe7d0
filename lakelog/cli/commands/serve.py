"""`lakelog serve` and `lakelog broker`: run a gateway, and list the gateways of a cluster."""

import errno
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from lakelog.cli.common import (
    GATEWAY,
    WAIT_S,
    CommandGroup,
    Data,
    Json,
    Url,
    Wait,
    connect,
    exit_code,
    pairs,
    print_json,
    print_table,
)
from log_tables.errors import LakelogError

if TYPE_CHECKING:
    from ingest.settings import Settings

ASKED_S = 2.0
"""How long whoever has the port may take to say who it is."""

_log = logging.getLogger(__name__)


def serve(  # noqa: PLR0913, PLR0917 -- each is an option
    data: Data = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen on; 0 takes a free one.", show_default="8082")
    ] = None,
    kafka_port: Annotated[
        int | None, typer.Option(help="Port of the host for Kafka's clients; without it none.")
    ] = None,
    rack: Annotated[
        str | None, typer.Option(help="Where it stands, such as a zone; Kafka's clients read there.")
    ] = None,
    maintain: Annotated[
        bool, typer.Option("--maintain", help="Also run `lakelog maintain`, every maintain_interval_ms.")
    ] = False,
    mirror: Annotated[
        bool, typer.Option("--mirror", help="Also run `lakelog mirror run`, for all mirrors of the root.")
    ] = False,
    replicate: Annotated[
        str | None,
        typer.Option(metavar="ROOT2", help="Also run `lakelog replicate ROOT2`, with standby_store_options."),
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, max=64, help="Gateway processes behind the port; each uses about one core.")
    ] = 1,
    config: Annotated[
        str | None, typer.Option(help="Settings file (TOML); lakelog.toml where it exists.")
    ] = None,
    must_exist: Annotated[
        bool,
        typer.Option(
            "--must-exist", help="Refuse to start where there is no cluster, instead of making one."
        ),
    ] = False,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Serve other machines without authentication.")
    ] = False,
    log_format: Annotated[
        str | None,
        typer.Option(
            metavar="text|json", help="Lines of text, or an object of JSON in each.", show_default="text"
        ),
    ] = None,
    set_: Annotated[
        list[str],
        typer.Option("--set", metavar="NAME=VALUE", help="Any other setting, such as --set linger_ms=0."),
    ] = [],  # noqa: B006 -- typer copies it
) -> None:
    """Run a gateway until SIGTERM or Ctrl-C. docs/operating.md of the sources lists every setting."""
    with _ended_in_order():
        from ingest.settings import load_settings

        named = {
            "data": data,
            "host": host,
            "port": port,
            "broker_rack": rack,
            "insecure": insecure or None,
            "must_exist": must_exist or None,
            "log_format": log_format,
        }
        settings = load_settings(config, **{**named, **pairs(set_, "--set")})
        if kafka_port is not None:
            at = f"[{settings.host}]" if ":" in settings.host else settings.host
            settings = settings.model_copy(update={"kafka_listener": f"{at}:{kafka_port}"})
        _serve(settings, workers, maintain, mirror, replicate)


def _serve(settings: "Settings", workers: int, maintain: bool, mirror: bool, standby: str | None) -> None:
    # Arrow's own pool keeps what it freed, a heap for each commit thread; malloc gives it back (measured
    # while 10 million records passed: 360 MB resident against 470 MB). It is chosen when Arrow is loaded.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    from api.log_format import log_to_stderr

    log_to_stderr(settings.log_level, settings.log_format)
    try:
        _run(settings, workers, maintain, mirror, standby)
    except (LakelogError, OSError) as error:
        if settings.log_format != "json":
            raise
        _log.error("%s", error)
        raise typer.Exit(exit_code(error)) from None


def _run(settings: "Settings", workers: int, maintain: bool, mirror: bool, standby: str | None) -> None:
    # Imported here, so that the other commands do not wait for the whole gateway.
    from api.process.server import check_exposure, run
    from api.process.workers import run_workers

    check_exposure(settings)
    with ExitStack() as stack:
        if maintain:
            from lakelog.cli.maintainer import maintainer

            stack.enter_context(maintainer(settings))
        if mirror:
            from lakelog.cli.beside import mirrors

            stack.enter_context(mirrors(settings))
        if standby is not None:
            from lakelog.cli.beside import replication

            stack.enter_context(replication(settings, standby))
        try:
            if workers == 1:
                run(settings)
            else:
                run_workers(settings, workers)
        except OSError as error:
            raise _told(error, settings) from None


def _told(error: OSError, settings: "Settings") -> OSError:
    """`error`, which of a port that is taken by a lakelog gateway names its root."""
    from lakelog.client.client import Client

    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::", "*") else settings.host
    at = f"[{host}]:{settings.port}" if ":" in host else f"{host}:{settings.port}"
    if error.errno != errno.EADDRINUSE or f":{settings.port} " not in str(error):
        return error
    logging.getLogger("httpx").setLevel(logging.WARNING)
    scheme = "https" if settings.ssl_certfile else "http"
    try:
        with Client(f"{scheme}://{at}", timeout_s=ASKED_S) as client:  # no credential: it may be anybody's
            found = client.cluster()["location"]
    except LakelogError:
        return error
    root = f" on {found.removeprefix('file://')}" if found else ""
    told = OSError(
        f"{at} is taken by a lakelog gateway{root}; use it, stop it, or choose another port, such as --port 0"
    )
    told.errno = error.errno
    return told


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """A signal before the server has its own handlers ends the process: there is nothing else to end yet.
    What runs beside it ends with it.
    """

    def end(_number: int, _frame: object) -> None:
        # Not by an error: Python drops one that is raised within a callback, as each import has one.
        os._exit(0)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


brokers = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)


@brokers.callback()
def _broker() -> None:
    """With a callback, one command stays a command of its own."""


@brokers.command("list")
def list_brokers(url: Url = GATEWAY, wait: Wait = WAIT_S, json: Json = False) -> None:
    """List the gateways: where each stands, whether it is alive, and how many partitions it leads."""
    with connect(url, wait) as client:
        found = client.brokers()
    if json:
        print_json(found)
        return
    rows = [
        (
            each["broker"],
            each["url"],
            each["rack"] or "-",
            "alive" if each["alive"] else "silent",
            f"{datetime.fromtimestamp(each['since'] / 1000, UTC):%Y-%m-%d %H:%M:%S}Z",
            sum(map(len, each["leads"].values())),
        )
        for each in found
    ]
    print_table(("broker", "url", "rack", "state", "since", "leads"), rows)
