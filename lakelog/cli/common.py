"""The parts that commands share: options, printing, exit codes, and the audit of what they change."""

import json
import os
import pwd
import re
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from lakelog.cli.contexts import names_url
from lakelog.cli.examples import epilog_of
from lakelog.client import DEFAULT_URL
from log_tables.errors import (
    AccessDenied,
    AlreadyExists,
    Conflict,
    InvalidArgument,
    InvalidRequest,
    LakelogError,
    NotFound,
    ObjectMissing,
    UnknownGroup,
    UnknownTopic,
    Unreachable,
)
from log_tables.spelling import meant
from log_tables.units import MILLISECONDS, without_unit

if TYPE_CHECKING:
    from rich.console import Console

    from ingest.settings import Settings
    from jobs.mirror.source import Source
    from lakelog.client.client import Client
    from log_tables.cluster.cluster import Cluster
    from log_tables.cluster.metadata_log import MirrorRecord
    from log_tables.store.store import Store

# Every command imports this module, so it imports nothing that takes long: `lakelog topic --help` needs no
# HTTP client, no settings and no Arrow.

Url = Annotated[str, typer.Option(envvar="LAKELOG_URL", help="The gateway.")]
Wait = Annotated[
    float,
    typer.Option(
        envvar="LAKELOG_WAIT",
        metavar="SECONDS",
        min=0,
        help="How long to wait for a gateway that is starting.",
    ),
]
Data = Annotated[
    str | None,
    typer.Option(
        help="Root of the tables: a directory or an object-store URL.", show_default="./lakelog-data"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]

GATEWAY = DEFAULT_URL
WAIT_S = 10.0
"""A gateway starts in two seconds, and on a busy machine in ten."""


class CommandGroup(TyperGroup):
    """A group of commands whose help starts fast."""

    def get_params(self, ctx: Any) -> list[Any]:
        params = super().get_params(ctx)
        for param in params:
            if getattr(param, "is_bool_flag", False) and param.default is None:
                param.default = False  # to convert None, typer would load pydantic
        return list(params)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, whose help ends with its examples."""
        command = super().get_command(ctx, cmd_name)
        if command is not None and not isinstance(command, TyperGroup):
            within = [ctx.info_name] if ctx.parent else []
            command.epilog = epilog_of(" ".join([*within, cmd_name]))
        return command


@cache
def console() -> "Console":
    """Standard output, for people. It prints text as it is: brackets and colons in a value are no markup."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else 200
    return Console(soft_wrap=True, highlight=False, markup=False, emoji=False, width=width)


@cache
def progress_console() -> "Console":
    """Standard error, where progress is shown and standard output stays clean."""
    from rich.console import Console

    return Console(stderr=True)


@contextmanager
def connect(url: str, wait_s: float, advice: str = "") -> "Iterator[Client]":
    """A client of the gateway at `url`. Raises Unreachable when none answers within `wait_s`.

    An error of a topic or a group that is not there names the one that may be meant; `advice` is what else
    the command can do about a topic.
    """
    from lakelog.client.client import Client

    with Client(url, **security_options()) as client:
        if wait_s > 0:
            client.wait(wait_s)
        try:
            yield client
        except UnknownTopic as error:
            raise _missing(error, "topic", client.topics, advice) from None
        except UnknownGroup as error:
            raise _missing(error, "group", lambda: [each["group"] for each in client.groups()]) from None


def _missing(error: NotFound, kind: str, names: Callable[[], list[str]], advice: str = "") -> NotFound:
    """`error` with what to do about it here: a gateway does not know which command it was."""
    found = re.match(rf"there is no (?:consumer )?{kind} '(.+?)'", error.message)
    if found is None:
        return error
    hint = f"`lakelog {kind} list` lists them"
    with suppress(LakelogError):
        hint = meant(found[1], names()) or hint
    return type(error)("; ".join(filter(None, (found[0], hint, advice))), **error.details)


def security_options() -> dict[str, Any]:
    """Options of a client: the credential and the certificates that the variables name, or the table `client`
    of the settings file.

    Raises InvalidArgument, InvalidConfig.
    """
    from lakelog.client.security_config import SecurityConfig, from_environment, security_config

    found = from_environment()
    path = Path(os.environ.get("LAKELOG_CONFIG") or "lakelog.toml")
    if found == SecurityConfig() and path.exists() and not names_url():
        from ingest.settings import load_settings

        found = security_config(load_settings(None).client.plain())
    return found.options()


def existing_root(data: str | None) -> "Store":
    """The store that `--data` or the settings name. Raises RootMissing."""
    from ingest.settings import load_settings
    from log_tables.store.store import open_store

    settings = load_settings(None, data=data)
    return open_store(settings.data, settings.store_options, create=False)


def cluster_at(data: str | None, create: bool = False) -> "Cluster":
    """The cluster at the root that `--data` or the settings name; with `create` an empty root becomes one,
    and that is said.

    Raises as `cluster_of`.
    """
    from ingest.opening import cluster_of
    from ingest.settings import load_settings

    with _shown("log_tables.cluster.metadata_log"):
        return cluster_of(load_settings(None, data=data), create=create)


@contextmanager
def _shown(name: str) -> Iterator[None]:
    """Show people what the logger of this name says."""
    import logging

    shown, log = logging.StreamHandler(), logging.getLogger(name)
    shown.setFormatter(logging.Formatter("lakelog: %(message)s"))
    level = log.level
    log.addHandler(shown)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(shown)
        log.setLevel(level)


def confirm(question: str, command: str) -> None:
    """Ask on a terminal before something is deleted; `command` is what says yes elsewhere.

    Raises InvalidArgument where nobody can be asked, and Exit for a no.
    """
    if not sys.stdin.isatty():
        raise InvalidArgument(f"nothing was deleted: there is nobody to ask; to say yes, type `{command}`")
    if not typer.confirm(question, err=True):
        print("nothing was deleted", file=sys.stderr)
        raise typer.Exit(1)


def print_json(value: Any) -> None:
    """Print one JSON document and flush: its reader may be waiting for it."""
    print(json.dumps(value, default=str), flush=True)


NULL = "NULL"
"""What stands for a value that is not there, so that it is no empty text."""


def dimmed(text: str) -> str:
    """`text`, on a terminal paler than what was stored."""
    return f"\x1b[2m{text}\x1b[0m" if sys.stdout.isatty() and "NO_COLOR" not in os.environ else text


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], null: str = "") -> None:
    """A table for people; numbers to the right, and `null`, paler, where there is no value."""
    from rich.table import Table
    from rich.text import Text

    listed = [list(row) for row in rows]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, name in enumerate(columns):
        numeric = bool(listed) and all(isinstance(row[index], int | float) for row in listed)
        table.add_column(printable(name), justify="right" if numeric else "left", overflow="fold")
    for row in listed:
        table.add_row(*(Text(null, "dim") if cell is None else shown(cell) for cell in row))
    console().print(table)


def shown(cell: Any, null: str = "") -> str:
    """A value as a table has it; `null` where there is none."""
    if isinstance(cell, float):
        return f"{cell:,.2f}"
    if isinstance(cell, bytes):
        return printable(cell.decode(errors="backslashreplace"))
    return null if cell is None else printable(str(cell))


_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"}


def printable(text: str) -> str:
    """`text` for a terminal: what would control it is shown by its number; tabs and line ends stay."""
    return text.translate(_CONTROLS).encode(errors="backslashreplace").decode()


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """`name=value` texts as a dictionary. Raises InvalidArgument."""
    found = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise InvalidArgument(f"{option} {text!r} is not name=value; write it so")
        found[name] = value
    return found


def standby_options(settings: "Settings", given: Sequence[str]) -> dict[str, str]:
    """The options of a standby's store: those of the root, where neither `standby_store_options` nor
    `--store-option`, as `given`, has others. Raises InvalidArgument.
    """
    own = {**settings.standby_store_options, **pairs(given, "--store-option")}
    return {**settings.store_options, **own}


def iso_ms(text: str) -> int:
    """An ISO-8601 time, UTC where it names no zone, as milliseconds since 1970. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (zoned - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def iso_text(at_ms: int) -> str:
    """A time in milliseconds since 1970 as ISO 8601, in UTC to the second."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def moment_ms(text: str, now_ms: int) -> int:
    """An ISO-8601 time, or `30m` for that long before `now_ms`, as milliseconds since 1970.

    Raises InvalidArgument.
    """
    ago = without_unit(text, MILLISECONDS)
    if ago != text and int(ago) <= now_ms:
        return now_ms - int(ago)
    try:
        return iso_ms(text)
    except ValueError:
        raise InvalidArgument(
            f"{text!r} is no time; write it as 2026-01-31T10:00:00Z, or 30m, 2h for as long ago"
        ) from None


_EVERY_MIN_MS = MILLISECONDS["s"]
_EVERY_MAX_MS = 366 * MILLISECONDS["d"]


def seconds(text: str) -> float:
    """`30s`, `5m` or `1h` in seconds; from one to a year. Raises InvalidArgument."""
    ms = without_unit(text, MILLISECONDS)
    if ms == text or not _EVERY_MIN_MS <= int(ms) <= _EVERY_MAX_MS:
        raise InvalidArgument(f"--every {text!r} is not a time; write it as 30s, 5m or 1h")
    return int(ms) / 1_000


def existing_file(path: Path) -> Path:
    """`path`, a file or a pipe, if it is there. Raises InvalidArgument."""
    if path.is_dir():
        raise InvalidArgument(f"{path} is a directory; name a file, or - for standard input")
    if not path.exists():
        raise InvalidArgument(f"there is no file {path}; name one, or - for standard input")
    return path


_OS_USER = "os:"
"""Stands before the name of an account of the operating system, so that it is no principal of the cluster."""


def note_change(
    cluster: "Cluster", operation: str, name: str = "", resource_type: str = "CLUSTER", **facts: object
) -> None:
    """Add what was done to the audit log, if there is one; a failure is a warning, as it was done. An event
    that cannot be appended waits in the root for a gateway.

    `name` is that of a resource, by default the cluster; `facts` have no secrets.
    """
    from log_tables.cluster.acl import CLUSTER_NAME
    from log_tables.cluster.admin.audit_log import append_batch, first_batch
    from log_tables.cluster.admin.audit_spill import spill
    from log_tables.cluster.audit_record import AuditKind, AuditRecord

    record = AuditRecord(
        uid=cluster.clock.unique_id(),
        kind=AuditKind.CHANGE,
        time_ms=cluster.clock.now_ms(),
        operation=operation,
        principal=_OS_USER + _account(),
        address=socket.gethostname(),
        resource_type=resource_type,
        resource_name=name or CLUSTER_NAME,
        facts=facts,
    )
    batch = first_batch(cluster.clock, [record])
    try:
        append_batch(cluster, batch)
    except (LakelogError, OSError) as error:
        said = f"this change is made, and is not in the audit log: {error}"
        with suppress(LakelogError, OSError):
            spill(cluster.store, [batch])
            said = f"this change is made, and is not in the audit log yet, but waits for a gateway: {error}"
        typer.echo(said, err=True)


def _account() -> str:
    """By the process, and not by variables such as LOGNAME, which everybody can set."""
    number = os.getuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # an account without a name, as in a container
        return str(number)


FAILED, WRONG, UNREACHABLE, DENIED, INTERRUPTED = 1, 2, 3, 4, 130

_WRONG = (InvalidRequest, NotFound, Conflict)
"""The same command would fail again: the caller has to change something."""

_OF_THE_STORE = (ObjectMissing, AlreadyExists)
"""Errors of these kinds that are about objects of the store, which no user has named."""


def exit_code(error: BaseException) -> int:
    """The exit code of a command that `error` has ended."""
    if isinstance(error, Unreachable):
        return UNREACHABLE
    if isinstance(error, AccessDenied):
        return DENIED
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    return WRONG if isinstance(error, _WRONG) and not isinstance(error, _OF_THE_STORE) else FAILED


def check_mirror_installed() -> None:
    """Raise InvalidArgument without confluent-kafka."""
    if find_spec("confluent_kafka") is None:
        raise InvalidArgument(
            "a mirror reads by confluent-kafka, which is not installed; install lakelog with its extra mirror"
        )


def source_of(mirror: "MirrorRecord") -> "Source":
    """The Kafka cluster that a mirror copies. Raises InvalidArgument."""
    check_mirror_installed()
    from jobs.mirror.source import Source

    return Source(mirror.source, mirror.config)
