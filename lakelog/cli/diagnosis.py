"""The checks of `lakelog doctor`: each finds out one thing about a gateway or a root, and changes nothing."""

import shutil
import ssl
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from log_tables.clock import Clock
from log_tables.counts import counted
from log_tables.errors import AccessDenied, LakelogError
from log_tables.limits import MIB
from log_tables.store.local import LocalStore
from log_tables.store.store import Store
from log_tables.version import VERSION

if TYPE_CHECKING:
    import httpx

    from lakelog.client.client import Client

CLOCK_S = 5.0
"""How far two clocks may be apart before retention and times of records are worth a word."""

CERTIFICATE_DAYS = 14
FREE_SHARE = 0.05
"""The share of a disk that is free when it is time to make room."""

ASKED_S = 5.0


class State(StrEnum):
    """How a check came out. SKIP: it could not be made here."""

    PASS = "PASS"  # noqa: S105 -- no password
    WARN = "WARN"
    FAIL = "FAIL"
    SKIP = "SKIP"


class Finding(NamedTuple):
    """The result of a check; `advice` says what to do, and is empty where all is well."""

    check: str
    state: State
    found: str
    advice: str = ""


def _passed(check: str, found: str) -> Finding:
    return Finding(check, State.PASS, found)


def of_gateway(client: "Client", clock: Clock) -> Iterator[Finding]:
    """The findings about a gateway: none after the one that makes the others impossible."""
    try:
        welcome = client.request("GET", "/", timeout_s=ASKED_S, headers={"Accept": "application/json"})
    except LakelogError as error:
        denied = isinstance(error, AccessDenied)
        advice = (
            "log in, with the variables of a client" if denied else "start it, or name another with --url"
        )
        yield Finding("gateway", State.FAIL, error.message, advice)
        return
    yield _passed("gateway", f"{client.url} answers")
    yield _encryption(client.url, clock)
    yield _caught("version", partial(_version, welcome))
    yield _caught("clock", partial(_clock, welcome, clock))
    yield _caught("root of the gateway", partial(_ready, client))
    yield _caught("rights", partial(_rights, client))
    yield _caught("gateways", partial(_gateways, client))


def of_root(open_root: Callable[[], Store]) -> Iterator[Finding]:
    """The findings about a root that this machine can open."""
    try:
        store = open_root()
    except LakelogError as error:
        yield Finding("root", State.SKIP, error.message, "name it with --data to have it looked at, too")
        return
    yield _caught("root", partial(_topics, store))
    if isinstance(store, LocalStore):
        yield _disk(Path(store.root))


def _caught(check: str, look: Callable[[], Finding]) -> Finding:
    """The finding of `look`, or the error that it raised as one."""
    try:
        return look()
    except AccessDenied as error:
        return Finding(check, State.WARN, error.message, "log in as a principal with the right that it names")
    except (LakelogError, OSError) as error:
        return Finding(check, State.FAIL, str(error), "docs/runbook.md of the sources lists causes")
    except (ValueError, KeyError, TypeError, AttributeError):
        return Finding(
            check, State.FAIL, "the answer is none of a lakelog gateway", "name its URL with --url"
        )


def _encryption(url: str, clock: Clock) -> Finding:
    check, address = "encryption", urlsplit(url)
    host = address.hostname or ""
    if address.scheme == "http":
        if host == "localhost" or host.startswith("127.") or host == "::1":
            return _passed(check, "none, on this machine alone")
        return Finding(check, State.WARN, "none", "use TLS: whoever sees the packets sees records and keys")
    try:
        days = _days_left(ssl.get_server_certificate((host, address.port or 443), timeout=ASKED_S), clock)
    except (OSError, ValueError) as error:
        return Finding(check, State.WARN, f"the certificate cannot be read ({error})", "look at it by hand")
    found = f"TLS, by a certificate for {counted(days, 'more day')}"
    if days >= CERTIFICATE_DAYS:
        return _passed(check, found)
    return Finding(check, State.WARN, found, "renew it; a gateway reads the new files by itself")


def _days_left(pem: str, clock: Clock) -> int:
    from cryptography.x509 import load_pem_x509_certificate

    ends_s = load_pem_x509_certificate(pem.encode()).not_valid_after_utc.timestamp()
    return int((ends_s - clock.now_ms() / 1_000) // 86_400)


def _version(welcome: "httpx.Response") -> Finding:
    theirs = str(welcome.json().get("version", "unknown"))
    if theirs == VERSION:
        return _passed("version", f"{VERSION}, here and there")
    found = f"{VERSION} here, {theirs} there"
    return Finding("version", State.WARN, found, "install one version on both sides")


def _clock(welcome: "httpx.Response", clock: Clock) -> Finding:
    told = welcome.headers.get("date")
    if told is None:
        return Finding("clock", State.SKIP, "the gateway, or a proxy before it, tells no time")
    apart_s = abs(parsedate_to_datetime(told).timestamp() - clock.now_ms() / 1_000)
    if apart_s <= CLOCK_S:
        return _passed("clock", f"less than {CLOCK_S:g} s from the gateway's")
    found = f"{apart_s:.0f} s from the gateway's"
    return Finding("clock", State.WARN, found, "set both by NTP: retention goes by time")


def _ready(client: "Client") -> Finding:
    check, answer = "root of the gateway", client.request("GET", "/ready", timeout_s=ASKED_S)
    if answer.json()["status"] == "full":
        return Finding(
            check,
            State.FAIL,
            "its store has no room: records are refused",
            "make room: docs/runbook.md#lakelogdiskfull says how",
        )
    return _passed(check, "it can be read")


def _rights(client: "Client") -> Finding:
    topics, location = client.topics(), client.cluster()["location"]
    found = f"you may describe {counted(len(topics), 'topic')}"
    if location is None:
        advice = "whoever runs it needs an ACL DESCRIBE of the cluster; others need none"
        return Finding("rights", State.WARN, f"{found}, and not the cluster", advice)
    return _passed("rights", f"{found}, and the cluster at {location.removeprefix('file://')}")


def _gateways(client: "Client") -> Finding:
    brokers = client.brokers()
    silent = [each["url"] for each in brokers if not each["alive"]]
    if not silent:
        return _passed("gateways", f"{counted(len(brokers), 'gateway')}, all alive")
    found = f"silent: {', '.join(silent)}"
    return Finding("gateways", State.WARN, found, "start them again; their logs say why they ended")


def _topics(store: Store) -> Finding:
    from log_tables.cluster.cluster import Cluster

    cluster = Cluster.open(store, create=False)
    cluster.refresh()
    return _passed("root", f"{store.url.removeprefix('file://')}, {counted(len(cluster.topics()), 'topic')}")


def _disk(path: Path) -> Finding:
    usage = shutil.disk_usage(path)
    share = usage.free / usage.total
    found = f"{usage.free // MIB:,} MiB free, {share:.0%}"
    if share >= FREE_SHARE:
        return _passed("disk", found)
    advice = "make room, shorten retention.ms, or move segments to a remote root"
    return Finding("disk", State.WARN, found, advice)
