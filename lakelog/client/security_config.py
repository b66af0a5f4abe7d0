"""How a program shows who it is, and whom it trusts: from variables, a settings file, or options of Spark."""

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakelog.client.credential import Credential
from log_tables.errors import InvalidArgument

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
