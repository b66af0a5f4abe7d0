"""The credential of a program: an API key, a token, or a name with its password."""

import base64
import os
import re
from pathlib import Path

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
