"""Who a program is, and whom it trusts: its credential, and the variables, files and options that name it."""

import base64
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from log_tables.errors import InvalidArgument

_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")
"""The text after Bearer (RFC 6750, 2.1)."""

_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")


class Credential:
    """Sent with every request of a client. Neither its repr nor an error shows what it holds."""

    __slots__ = ("_file", "_header")

    def __init__(self, header: str, file: str = "") -> None:
        """The methods below make one. `header` is empty until `file` is read."""
        self._header, self._file = header, file

    def __repr__(self) -> str:
        return "Credential(…)"

    @classmethod
    def api_key(cls, text: str) -> "Credential":
        """An API key, `ID.SECRET`, or a token of an OIDC provider. Raises InvalidArgument for neither."""
        return cls(_bearer(text, "the API key"))

    @classmethod
    def api_key_file(cls, path: str | os.PathLike[str]) -> "Credential":
        """An API key in a file, read at the first request and again when the gateway refuses the key."""
        return cls("", os.path.abspath(path))

    @classmethod
    def user(cls, name: str, password: str) -> "Credential":
        """A SCRAM user, or the id and the secret of an API key. Raises InvalidArgument."""
        if not name or ":" in name or _CONTROLS.search(name + password):
            raise InvalidArgument(
                "a user has a name without a colon, and a password, both without control characters; "
                "correct them"
            )
        return cls("Basic " + base64.b64encode(f"{name}:{password}".encode()).decode())

    def header(self) -> str:
        """The header Authorization. Raises InvalidArgument for a file that cannot be read, or has none."""
        if not self._header:
            self._header = self._read()
        return self._header

    def renewed(self, refused: str) -> str | None:
        """The header after a gateway has refused one; None if there is no other."""
        if self._file:
            try:
                self._header = self._read()
            except InvalidArgument:
                return None
        return self._header if self._header != refused else None

    def _read(self) -> str:
        try:
            text = Path(self._file).read_text("ascii").strip()
        except OSError as error:
            raise InvalidArgument(
                f"the file of the API key, {self._file}, cannot be read ({error.strerror}); name one that can"
            ) from None
        except UnicodeDecodeError:
            text = ""
        return _bearer(text, f"what {self._file} holds")


def _bearer(text: str, what: str) -> str:
    if not _TOKEN.fullmatch(text):
        raise InvalidArgument(f"{what} is no API key and no token; an API key is written as ID.SECRET")
    return f"Bearer {text}"


NAMES = ("api_key", "api_key_file", "user", "password", "ca_file", "certfile", "keyfile")
PREFIX = "LAKELOG_"
"""Of the variables: `LAKELOG_API_KEY` is `api_key`."""


@dataclass(frozen=True, slots=True)
class SecurityConfig:
    """The credential of a program, the authorities that it trusts instead of the system's, and its own
    certificate, with its key, where the gateway asks for one. Files are in PEM.
    """

    credential: Credential | None = None
    ca_file: str = ""
    certfile: str = ""
    keyfile: str = ""

    def options(self) -> dict[str, Any]:
        """Options of a Client, a Producer or a Consumer. Raises InvalidArgument for a wrong file."""
        return {"credential": self.credential, "ssl_context": self._ssl_context()}

    def _ssl_context(self) -> ssl.SSLContext | None:
        if not (self.ca_file or self.certfile):
            return None
        context = _trusting(self.ca_file)
        if self.certfile:
            try:
                context.load_cert_chain(self.certfile, self.keyfile or None, _no_password)
            except (OSError, ValueError) as error:
                raise InvalidArgument(
                    f"certfile {self.certfile!r} and keyfile {self.keyfile!r} are no certificate and its key "
                    f"in PEM, without a password ({_reason(error)}); name such files"
                ) from None
        return context


def security_config(given: Mapping[str, str], called: Mapping[str, str] | None = None) -> SecurityConfig:
    """The one that `given` names. Raises InvalidArgument for several credentials, or half a one.

    `given` has values by NAMES, or by what they are `called`.
    """
    called = called or {name: name for name in NAMES}
    said = {name: given[called[name]] for name in NAMES if given.get(called[name])}
    kinds = [name for name in ("api_key", "api_key_file", "user") if name in said]
    if len(kinds) > 1 or ("user" in said) != ("password" in said):
        names = " and ".join(called[name] for name in NAMES[:4] if name in said)
        one, another, user, password = (called[name] for name in NAMES[:4])
        raise InvalidArgument(f"there is {names}; set {one}, or {another}, or {user} and {password}")
    if "keyfile" in said and "certfile" not in said:
        raise InvalidArgument(f"{called['keyfile']} does nothing without {called['certfile']}; set both")
    files = {name: os.path.abspath(said[name]) for name in NAMES[4:] if name in said}
    return SecurityConfig(_credential(said), **files)


def from_environment() -> SecurityConfig:
    """The one that the variables name. Raises InvalidArgument as `security_config`."""
    return security_config(os.environ, {name: PREFIX + name.upper() for name in NAMES})


def _credential(said: Mapping[str, str]) -> Credential | None:
    if "user" in said:
        return Credential.user(said["user"], said["password"])
    if "api_key_file" in said:
        return Credential.api_key_file(said["api_key_file"])
    return Credential.api_key(said["api_key"]) if "api_key" in said else None


def _trusting(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:  # ssl.SSLError is one
        raise InvalidArgument(
            f"ca_file {ca_file!r} holds no certificates ({_reason(error)}); name a file in PEM"
        ) from None


def _no_password() -> str:
    raise ValueError("the key has a password")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "it is not PEM"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
