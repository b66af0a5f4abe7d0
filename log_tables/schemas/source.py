"""Where a topic has its schemas from: `topic:NAME`, the URL of a registry, or `files`."""

import re
from urllib.parse import urlsplit

from log_tables.errors import InvalidConfig
from log_tables.layout import RESERVED_PREFIX, RESERVED_TOPICS
from log_tables.limits import TOPIC_NAME_MAX_CHARS

FILES = "files"
_TOPIC = "topic:"
_NAME = re.compile(rf"[a-zA-Z0-9._-]{{1,{TOPIC_NAME_MAX_CHARS}}}")
_URL = re.compile(r"https?://[^\s/@?#\\%]{1,300}(/[^\s@?#\\]{0,1700})?", re.ASCII)


def check_source(text: str) -> None:
    """Raise InvalidConfig unless `text` is a place of schemas, or empty."""
    if text in ("", FILES) or _is_topic(text) or _is_url(text):
        return
    shown = text.rpartition("@")[2]  # a password may stand before it
    raise InvalidConfig(
        f"{shown[:100]!r} is no place of schemas; use topic:NAME for a topic in which a registry keeps them, "
        "the URL of a registry such as http://127.0.0.1:8081, without a user, or files"
    )


def topic_of(source: str) -> str | None:
    """The name of the topic that `source` is; None if it is another place."""
    return source.removeprefix(_TOPIC) if source.startswith(_TOPIC) else None


def is_url(source: str) -> bool:
    """Whether `source`, which `check_source` has let pass, is the URL of a registry."""
    return source.startswith(("http://", "https://"))


def one_url(url: str) -> str:
    """The one spelling of a URL: the scheme and the host are in small letters, and nothing ends with `/`."""
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme.lower()}://{host.lower()}{slash}{path}".rstrip("/")


def _is_topic(text: str) -> bool:
    name = topic_of(text)
    if name is None or not _NAME.fullmatch(name) or name in (".", ".."):
        return False
    return name not in RESERVED_TOPICS and not name.startswith(RESERVED_PREFIX)


def _is_url(text: str) -> bool:
    if not _URL.fullmatch(text):
        return False
    try:
        parts = urlsplit(text)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none, or half an address of IPv6
        return False
