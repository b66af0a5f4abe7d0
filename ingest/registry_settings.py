"""The registries of schemas that a process may ask, as its settings name them, with their credentials.

A topic names a registry by its URL, and whoever may change a topic could make a gateway ask any host. So only
those are asked that the setting `schema_registries` names.
"""

from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from log_tables.errors import InvalidConfig
from log_tables.schemas.registry_client import RegistryAccess
from log_tables.schemas.source import check_source, is_url, one_url
from log_tables.store.file import unusable

_OTHERS = 0o077
_HERE = ("localhost", "127.0.0.1", "::1")


class RegistrySettings(BaseModel):
    """How a registry is asked: a user with a password, or a token, each here or in a file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    user: str = ""
    password: SecretStr = SecretStr("")
    password_file: str = ""
    token: SecretStr = SecretStr("")
    token_file: str = ""
    ca_file: str = ""
    timeout_ms: int = Field(default=2_000, ge=50, le=60_000)

    @model_validator(mode="after")
    def _has_one_credential(self) -> "RegistrySettings":
        passwords = [name for name in ("password", "password_file") if self.plain[name]]
        tokens = [name for name in ("token", "token_file") if self.plain[name]]
        if len(passwords) + len(tokens) > 1:
            raise ValueError(f"there is {' and '.join((*passwords, *tokens))}; set one of them")
        if bool(self.user) != bool(passwords):
            raise ValueError("a user needs a password or a password_file, and these a user; set both")
        return self

    @property
    def plain(self) -> dict[str, str]:
        """The texts, secrets too."""
        secrets = {"password": self.password, "token": self.token}
        texts = {name: value for name, value in self if isinstance(value, str)}
        return {**texts, **{name: each.get_secret_value() for name, each in secrets.items()}}

    def as_json(self) -> dict[str, str | int]:
        """All that was set, secrets too, for the environment of another process."""
        return {name: text for name, text in self.plain.items() if text} | {"timeout_ms": self.timeout_ms}


def checked_registries(found: dict[str, RegistrySettings]) -> dict[str, RegistrySettings]:
    """`found` by the one spelling of each URL. Raises ValueError for what is no URL of a registry, and for
    credentials that others would read on their way.
    """
    for url, each in found.items():
        try:
            check_source(url)
        except InvalidConfig as error:
            raise ValueError(error.message) from None
        if not is_url(url):
            raise ValueError(f"{url[:100]!r} is no URL; write it as https://HOST:PORT")
        has_credential = bool(each.user or each.token_file or each.token.get_secret_value())
        if has_credential and url.startswith("http://") and urlsplit(url).hostname not in _HERE:
            raise ValueError(f"the credentials of {url} would be read on their way; use https")
    return {one_url(url): each for url, each in found.items()}


def registry_accesses(registries: dict[str, RegistrySettings]) -> tuple[RegistryAccess, ...]:
    """The registries of a process. Raises InvalidConfig for a file that it cannot read, or others can."""
    for each in registries.values():
        for name in ("password_file", "token_file"):
            _check_file(name, each.plain[name])
        _check_there("ca_file", each.ca_file)
    return tuple(
        RegistryAccess(url, timeout_s=each.timeout_ms / 1_000, **each.plain)
        for url, each in registries.items()
    )


def _check_file(name: str, path: str) -> None:
    _check_there(name, path)
    if path and Path(path).stat().st_mode & _OTHERS:
        raise InvalidConfig(f"schema_registries: {name} {path}: others may read it; run `chmod 600` on it")


def _check_there(name: str, path: str) -> None:
    if not path:
        return
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        said = f"schema_registries: {name} {path} cannot be read"
        raise unusable(said, error, "name another", InvalidConfig) from None
