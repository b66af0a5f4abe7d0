"""Python programs: administration, producers, consumers, transactions, SQL."""

import json
from collections.abc import Callable
from typing import Any

DEFAULT_URL = "http://127.0.0.1:8082"
"""Where a gateway listens unless it is configured otherwise."""

Serializer = Callable[[Any], bytes]
"""A key or a value as bytes. It is never given None: that is no key, or no value."""

Deserializer = Callable[[bytes], Any]
"""The reverse. It is never given None."""


def json_serializer(content: Any) -> bytes:
    """`content` as JSON, in UTF-8. Raises TypeError for what JSON has no form of, ValueError for NaN."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def json_deserializer(data: bytes) -> Any:
    """The value of the JSON text `data`. Raises ValueError for a text that is not JSON."""
    return json.loads(data)
