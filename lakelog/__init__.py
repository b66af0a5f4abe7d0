"""lakelog: a streaming log whose storage is the lakehouse. What programs use: `Client`, `Producer`."""

from lakelog.client import Client
from lakelog.producer import Producer
from log_tables.record import Record

__all__ = ["Client", "Producer", "Record"]
