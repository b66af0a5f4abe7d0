"""The reasons for which a record batch of a producer is refused, each with its error code of Kafka."""

from collections.abc import Sequence
from enum import IntEnum


class BatchError(IntEnum):
    """Kafka's error codes that a record batch can have (protocol, "Error Codes")."""

    CORRUPT_MESSAGE = 2
    MESSAGE_TOO_LARGE = 10
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    UNSUPPORTED_COMPRESSION_TYPE = 76
    INVALID_RECORD = 87


Culprits = Sequence[tuple[int, str]]
"""The places of records in their batch, and why each is refused (KIP-467)."""


class InvalidBatch(Exception):
    """A record batch that is not taken. `code` is the error code of the answer, `message` its text.

    `culprits` are the records that are to blame, where not all are: a client fails these, and its program may
    send the others again.
    """

    def __init__(self, code: BatchError, message: str, culprits: Culprits = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.culprits = culprits


def corrupt(message: str) -> InvalidBatch:
    """The error of bytes that were changed or cut on their way: the producer sends them again."""
    return InvalidBatch(BatchError.CORRUPT_MESSAGE, message)


def invalid(message: str) -> InvalidBatch:
    """The error of a batch that its producer made wrongly."""
    return InvalidBatch(BatchError.INVALID_RECORD, message)


def too_large(message: str) -> InvalidBatch:
    """The error of a batch that is, or unpacks to, more than is taken at once."""
    return InvalidBatch(BatchError.MESSAGE_TOO_LARGE, message)
