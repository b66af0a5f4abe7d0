"""`lakelog replicate`: a standby that follows a root."""

from typing import Annotated

import typer

from lakelog.cli.common import Data, pairs, standby_options
from log_tables.errors import InvalidArgument


def replicate(  # noqa: PLR0913, PLR0917 -- each is an option
    target: Annotated[str, typer.Argument(metavar="ROOT2", help="The standby: a directory or a URL.")],
    data: Data = None,
    store_option: Annotated[
        list[str],
        typer.Option("--store-option", metavar="NAME=VALUE", help="An object store option of ROOT2."),
    ] = [],  # noqa: B006 -- typer copies it
    with_credentials: Annotated[
        bool, typer.Option("--with-credentials", help="Copy API keys and users, too.")
    ] = False,
    must_exist: Annotated[
        bool, typer.Option("--must-exist", help="Refuse to begin a new standby: ROOT2 has to be one.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="End as soon as the standby is level.")] = False,
    with_stdin: Annotated[
        bool,
        typer.Option(
            "--with-stdin", help="Stop when standard input ends: for a program that starts this one."
        ),
    ] = False,
    config: Annotated[
        str | None, typer.Option(help="Settings file (TOML); lakelog.toml where it exists.")
    ] = None,
    set_: Annotated[list[str], typer.Option("--set", metavar="NAME=VALUE", help="Any other setting.")] = [],  # noqa: B006
) -> None:
    """Let ROOT2 follow this root, until SIGTERM or Ctrl-C. Several processes share its tables."""
    from api.log_format import log_to_stderr
    from ingest.opening import cluster_of
    from ingest.settings import load_settings
    from jobs.replica.limited import LimitedStore, Rate
    from jobs.replica.opening import check_apart
    from jobs.replica.replication import Replication
    from jobs.replica.replicator import Figures
    from lakelog.cli.beside import stopping_event
    from log_tables.clock import SystemClock
    from log_tables.cluster.standby import read_mark
    from log_tables.store.store import open_store

    settings, clock = load_settings(config, data=data, **pairs(set_, "--set")), SystemClock()
    log_to_stderr(settings.log_level, settings.log_format)
    source = cluster_of(settings, clock).store
    options = standby_options(settings, store_option)
    check_apart(source, target)  # before a directory is made in the source
    standby = open_store(target, options, create=not must_exist, clock=clock)
    if must_exist and read_mark(standby) is None:
        raise InvalidArgument(
            f"{target} is no standby, and --must-exist is set; mount it, or begin one without --must-exist"
        )
    data_rate = Rate(clock, settings.replicate_max_bytes_per_second)
    request_rate = Rate(clock, settings.replicate_max_requests_per_second)
    if data_rate.is_bounded or request_rate.is_bounded:
        source, standby = (LimitedStore(each, request_rate, data_rate) for each in (source, standby))
    begun_s = clock.monotonic()
    with stopping_event(with_stdin) as stopping:

        def end(now: Figures) -> None:
            if not now.commits and now.lag_s < clock.monotonic() - begun_s:
                stopping.set()

        follow = Replication(source, standby, clock, with_credentials)
        follow.run(stopping, end if once else lambda _: None)
