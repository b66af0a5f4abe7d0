"""Where `lakelog produce` reads: a file or standard input, inflated, and which format it has."""

import gzip
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from lakelog.cli.common import existing_file
from log_tables.errors import InvalidArgument

STDIN = Path("-")
_LOOK_BYTES = 4_096


class Format(StrEnum):
    """How the input is cut into records."""

    LINES = "lines"
    NDJSON = "ndjson"
    CSV = "csv"
    PARQUET = "parquet"


_BY_SUFFIX = {
    ".txt": Format.LINES,
    ".log": Format.LINES,
    ".ndjson": Format.NDJSON,
    ".jsonl": Format.NDJSON,
    ".csv": Format.CSV,
    ".parquet": Format.PARQUET,
}
_PACKED = (".gz", ".zst")

_GZIP, _ZSTD, _PARQUET = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1"
_REFUSED = {
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x04\x22\x4d\x18": "lz4",
    b"PK\x03\x04": "a zip archive, as .xlsx files are",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"Obj\x01": "Avro",
    b"ORC": "ORC",
    b"ARROW1": "Arrow",
    b"%PDF": "PDF",
}
"""The first bytes of formats that lakelog cannot read."""


class Source(NamedTuple):
    """An input and its format. `named` says that the user chose it: then NUL bytes do not tell of another."""

    file: Path
    form: Format
    named: bool

    @property
    def again(self) -> bool:
        """Whether it can be read twice: a file can, standard input and pipes cannot."""
        return self.file != STDIN and self.file.is_file()


def source(file: Path, form: Format | None) -> Source:
    """The input `file`, whose format its name says unless `form` does. Raises InvalidArgument."""
    if file == STDIN:
        if form is Format.PARQUET:
            raise InvalidArgument("Parquet is not read from standard input; name a file")
        return Source(file, form or Format.LINES, form is not None)
    existing_file(file)
    if not file.is_file():  # a pipe, or a device
        if form is Format.PARQUET:
            raise InvalidArgument(
                f"{file} can only be read once, from its begin to its end, and Parquet not so; name a file"
            )
        return Source(file, form or Format.LINES, form is not None)
    suffixes = [suffix.lower() for suffix in file.suffixes if suffix.lower() not in _PACKED]
    found = form or _BY_SUFFIX.get(suffixes[-1] if suffixes else "")
    if found is None:
        known = ", ".join(_BY_SUFFIX)
        raise InvalidArgument(f"{file} has none of the suffixes {known} (and .gz or .zst); name its --format")
    return Source(file, found, form is not None)


@contextmanager
def opened(source: Source) -> Iterator[BinaryIO]:
    """Its bytes, inflated as they are read. Raises InvalidArgument for what cannot be its format."""
    raw = sys.stdin.buffer if source.file == STDIN else source.file.open("rb")
    with raw, _named(source):
        packed = io.BufferedReader(cast("io.RawIOBase", _Prefixed(raw)), 1 << 16)
        first = packed.peek(_LOOK_BYTES)
        if first.startswith((_GZIP, _ZSTD)):
            if source.form is Format.PARQUET:
                raise InvalidArgument(
                    f"{source.file} is packed, and Parquet is read in place; unpack it first"
                )
            packed = io.BufferedReader(_inflated(packed, first), 1 << 16)
            first = packed.peek(_LOOK_BYTES)
        _check(source, first)
        yield packed


class _Prefixed(io.RawIOBase):
    """A stream as a raw one, which a BufferedReader can look ahead in."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = (
            self._stream.read1(len(buffer))
            if hasattr(self._stream, "read1")
            else self._stream.read(len(buffer))
        )
        buffer[: len(data)] = data
        return len(data)


def _inflated(packed: BinaryIO, first: bytes) -> io.RawIOBase:
    if first.startswith(_GZIP):
        return cast("io.RawIOBase", gzip.GzipFile(fileobj=packed))
    import pyarrow as pa

    return cast("io.RawIOBase", _Prefixed(pa.CompressedInputStream(pa.PythonFile(packed, "r"), "zstd")))


@contextmanager
def _named(source: Source) -> Iterator[None]:
    """Raise InvalidArgument for a file that its unpacker finds broken."""
    import zlib

    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InvalidArgument(f"{source.file} cannot be inflated ({error}); pack it again") from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise InvalidArgument(f"{source.file} cannot be inflated ({error}); pack it again") from None


def _check(source: Source, first: bytes) -> None:
    """Raise InvalidArgument for first bytes that are another format's."""
    what = next((what for begin, what in _REFUSED.items() if first.startswith(begin)), None)
    if first.startswith((_GZIP, _ZSTD)):
        what = "packed twice"
    if first.startswith(_PARQUET) and source.form is not Format.PARQUET:
        what = "Parquet"
    if what is not None:
        raise InvalidArgument(
            f"{source.file} is {what}, not {source.form.value}; convert it, or name its --format"
        )
    if b"\0" in first and source.form is not Format.PARQUET and not source.named:
        raise InvalidArgument(
            f"{source.file} holds bytes that are no text; name its --format (lines may hold any bytes)"
        )
