"""Bodies as senders compress them."""

import gzip
from collections.abc import Callable, Mapping

import pyarrow as pa


def _zstd(data: bytes) -> bytes:
    packed: bytes = pa.Codec("zstd").compress(data, asbytes=True)
    return packed


PACKERS: Mapping[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": _zstd}
"""By the names of Content-Encoding."""
