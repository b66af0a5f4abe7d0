"""`lakelog doctor`: what is wrong between here, a gateway and its root, and a bundle for whoever helps."""

import os
import platform
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakelog.cli.common import (
    FAILED,
    GATEWAY,
    Data,
    Json,
    Url,
    console,
    existing_root,
    print_json,
    security_options,
)
from log_tables.clock import SystemClock
from log_tables.counts import counted
from log_tables.errors import InvalidArgument, LakelogError
from log_tables.limits import MIB

if TYPE_CHECKING:
    from lakelog.cli.diagnosis import Finding
    from lakelog.client.client import Client

LOG_BYTES = 4 * MIB
"""How much of the end of a log goes into a bundle."""

HIDDEN = "(hidden)"

_SECRET_NAME = (
    r"(?<![\w.-])[\w.-]*(?:passw|passphrase|\bpwd|secret|token|credential|signature|\bsig|\bsas|"  # noqa: S105 -- no password
    r"(?:api|access|account|private)[_-]?key)[\w.-]*"
)
_QUOTED = r""" "(?:[^"\\\n]|\\.)*"? | '(?:[^'\\\n]|\\.)*'? | \\"[^"\\\n]*(?:\\")? """
"""Also one that nobody closes."""

_SECRETS = [
    re.compile(pattern.encode(), re.IGNORECASE | re.DOTALL | re.VERBOSE)
    for pattern in (
        r"()\A[\w+/=\s]+-----END\ [A-Z ]*PRIVATE\ KEY-----",  # its beginning is cut off
        r"()-----BEGIN\ [A-Z ]*PRIVATE\ KEY-----.*?(?:-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z)",
        r"((?:Authorization|Cookie)\\?[\"']?\s*:\s*\\?[\"']?)[^\s\"'\\][^\"'\\\n]*",
        r"(\b(?:Bearer|Basic)\s+)[\w.~+/=-]{8,}",
        r"(://)[^/\s]+(?=@)",
        rf"""({_SECRET_NAME}\\?["']?\s*[=:]\s* (?!\(hidden\))(?:\w*[(\[{{]\s*)?)
            [bru]{{0,2}}(?:{_QUOTED}|[^\s,;&}}"'\\]+)""",
        rf"((?=--){_SECRET_NAME}\s+)(?!-)(?:{_QUOTED}|\S+)",
        r"()\b[0-9a-f]{12}\.[\w-]{43}(?![\w-])",  # coordinator/access/authentication/api_key.py
        r"()\beyJ[\w-]+\.[\w-]+\.[\w-]*",  # RFC 7519
        r"()\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",  # Amazon's
    )
]
"""What may be a secret in a text, each after what stays of it."""

_NAMED = re.compile(_SECRET_NAME, re.IGNORECASE)

_LITERAL_MIN = 6
"""A shorter value may be a part of any word."""

_OPEN = ("URL", "DATA", "CONTEXT", "WAIT", "PORT", "HOST", "CONFIG", "FILE", "MS", "ENABLE", "METHODS")
"""The last words of variables that hold no secret."""


def doctor(
    url: Url = GATEWAY,
    data: Data = None,
    bundle: Annotated[
        Path | None, typer.Option(help="Also write this file, a .zip, for whoever helps; no secret is in it.")
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(help="Of --bundle: the gateway's log; its end is put in, and secrets are not."),
    ] = None,
    fsck: Annotated[
        bool, typer.Option("--fsck", help="Of --bundle: check the whole root, and put that in.")
    ] = False,
    json: Json = False,
) -> None:
    """Look for what is wrong: with the gateway, TLS, rights, clocks, versions, the root, its disk.

    Nothing is changed. Exit code 1 when something fails. A bundle has what was found, versions, settings
    without secrets, metrics, gateways, groups, and topics with their settings. It has no records and no keys.
    """
    from lakelog.cli import diagnosis
    from lakelog.client.client import Client

    if bundle is None and (log is not None or fsck):
        raise InvalidArgument("--log and --fsck are for a bundle; name its file with --bundle")
    with _quiet(), Client(url, **security_options()) as client:
        looks = (diagnosis.of_gateway(client, SystemClock()), diagnosis.of_root(lambda: existing_root(data)))
        findings = [_told(finding, json) for look in looks for finding in look]
        if bundle is not None:
            root = {"fsck.json": _or_error(lambda: _fsck(data))} if fsck else {}
            _write(bundle, {"findings.json": _plain(findings), **_facts(client), **root}, log)
    failed = sum(each.state is diagnosis.State.FAIL for each in findings)
    if json:
        print_json({"findings": _plain(findings), "failed": failed})
    else:
        if bundle is not None:
            console().print(f"wrote {bundle}: look through it before you hand it on")
        console().print(f"{counted(failed, 'check')} failed" if failed else "no check failed")
    if failed:
        raise typer.Exit(FAILED)


def _plain(findings: "list[Finding]") -> list[dict[str, Any]]:
    return [each._asdict() for each in findings]


def _told(finding: "Finding", json: bool) -> "Finding":
    if not json:
        console().print(f"{finding.state}  {finding.check}: {finding.found}")
        if finding.advice:
            console().print(f"      {finding.advice}")
    return finding


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the lines that libraries log: findings say what there is to say."""
    import logging

    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _facts(client: "Client") -> dict[str, Any]:
    """The files of a bundle but those of the root, by name. Where the gateway refuses, it is its error."""
    return {
        "versions.json": _versions(),
        "settings.json": _settings(),
        "metrics.txt": _or_error(lambda: client.request("GET", "/metrics").text),
        "gateways.json": _or_error(client.brokers),
        "groups.json": _or_error(client.groups),
        "topics.json": _or_error(lambda: {name: client.topic(name) for name in client.topics()}),
    }


def _or_error(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except LakelogError as error:
        return {"error": error.code, "message": error.message}


def _fsck(data: str | None) -> dict[str, Any]:
    from log_tables.root.fsck import check

    return check(existing_root(data)).as_dict()


def _versions() -> dict[str, str]:
    from importlib.metadata import distributions

    named = ((each.metadata["Name"], each.version) for each in distributions())
    packages = {name: version for name, version in named if name}  # what is half installed has none
    return {"python": sys.version, "platform": platform.platform(), **dict(sorted(packages.items()))}


def _settings() -> dict[str, Any]:
    """The settings as a gateway that was started here would have them, and the variables that are set."""
    from ingest.settings import SECRET, load_settings

    said = {name: value for name, value in os.environ.items() if name.startswith("LAKELOG_")}
    variables = {name: _visible(name, value) for name, value in said.items()}
    found = _or_error(lambda: load_settings(None).model_dump(mode="json"))  # a SecretStr is stars in it
    hidden = {name: HIDDEN for name, value in found.items() if "://" in str(value) and "@" in str(value)}
    hidden |= {name: HIDDEN for name in SECRET if found.get(name)}
    return {**found, **hidden, "variables": variables}


def _visible(name: str, value: str) -> str:
    """The value of a variable whose kind holds no secret, unless it is a URL with a user in it."""
    return value if _is_open(name) and "@" not in value else HIDDEN


def _is_open(name: str) -> bool:
    return name.rpartition("_")[2].upper() in _OPEN


def _write(bundle: Path, files: dict[str, Any], log: Path | None) -> None:
    """Raises InvalidArgument for a file that is there, or cannot be written."""
    from zipfile import ZIP_DEFLATED, ZipFile

    try:
        texts = texts_of(files if log is None else {**files, "gateway.log": _end(log)})
        with ZipFile(bundle, "x", ZIP_DEFLATED) as packed:
            for name, text in texts.items():
                packed.writestr(name, text)
    except FileExistsError:
        raise InvalidArgument(f"{bundle} is there already; name another file") from None
    except OSError as error:
        named = error.filename or bundle
        raise InvalidArgument(f"{named} cannot be used ({error.strerror}); name another") from None


def _end(log: Path) -> bytes:
    """The last whole lines."""
    beginning = max(0, log.stat().st_size - LOG_BYTES)
    with log.open("rb") as stream:
        stream.seek(beginning)
        if beginning:
            stream.readline()
        return stream.read()


def texts_of(files: Mapping[str, Any]) -> dict[str, bytes]:
    """The files of a bundle as they are packed, none with a secret: a text as it is, all else as JSON."""
    from json import dumps

    known, texts = _known_secrets(), dict[str, bytes]()
    for name, content in files.items():
        if isinstance(content, str | bytes):
            text = content.encode() if isinstance(content, str) else content
            texts[name] = without_secrets(text, known)
        else:
            texts[name] = dumps(_hidden(content, known), indent=2).encode()
    return texts


def _hidden(value: Any, known: Collection[str], is_secret: bool = False) -> Any:
    """A value of JSON without secrets, which may be in names, too; nothing of one that `is_secret`."""
    match value:
        case None | bool():
            return value
        case dict():
            return {
                _without(name, known): _hidden(each, known, is_secret or _names_secret(name))
                for name, each in value.items()
            }
        case list() | tuple():
            return [_hidden(each, known, is_secret) for each in value]
        case int() | float() if not is_secret:
            return value
    return HIDDEN if is_secret else _without(value, known)


def _without(text: object, known: Collection[str]) -> str:
    return without_secrets(str(text).encode(), known).decode()


def _names_secret(name: object) -> bool:
    return _NAMED.fullmatch(str(name)) is not None and not _is_open(str(name))


def without_secrets(text: bytes, known: Collection[str] = ()) -> bytes:
    """`text` without what may be a secret: values by their names, headers, keys and tokens by their form, and
    those that are `known`.
    """
    hidden = HIDDEN.encode()
    for value in sorted(known, key=len, reverse=True):
        text = text.replace(value.encode(), hidden)
    for pattern in _SECRETS:
        text = pattern.sub(rb"\g<1>" + hidden, text)
    return text


def _known_secrets() -> set[str]:
    """The secrets in the variables of this process and in its settings."""
    from pydantic import SecretStr

    from ingest.settings import load_settings

    found = {value for name, value in os.environ.items() if _NAMED.fullmatch(name)}
    with suppress(LakelogError):
        settings = load_settings(None)
        found |= {str(value) for name, value in settings.store_options.items() if _NAMED.fullmatch(name)}
        found |= {each.get_secret_value() for _, each in settings if isinstance(each, SecretStr)}
        for registry in settings.schema_registries.values():
            found |= {registry.plain["password"], registry.plain["token"]}
    return {value for value in found if len(value) >= _LITERAL_MIN and not Path(value).exists()}
