"""lakelog: a streaming log whose storage is the lakehouse. Programs use `Client`, `Consumer`, `Producer`."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakelog.client.client import Client
    from lakelog.client.consumer import Consumer
    from lakelog.client.producer import Producer
    from log_tables.record import Record

__all__ = ["Client", "Consumer", "Producer", "Record"]

_MODULES = {
    "Client": "lakelog.client.client",
    "Consumer": "lakelog.client.consumer",
    "Producer": "lakelog.client.producer",
    "Record": "log_tables.record",
}


def __getattr__(name: str) -> object:
    """Load a name at its first use (PEP 562): a command must not wait for what it does not need."""
    if name not in _MODULES:
        raise AttributeError(f"module 'lakelog' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
