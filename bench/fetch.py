"""A fetch client: reads a topic to its end over one kept-alive connection, as Arrow or as JSON."""

import http.client
from urllib.parse import urlsplit

import msgspec
import pyarrow as pa

from bench.load import ARROW, JSON


class Fetched(msgspec.Struct):
    """One record of a JSON answer."""

    offset: int
    value: msgspec.Raw


_decoder = msgspec.json.Decoder(list[Fetched])


def read_topic(url: str, topic: str, partitions: int, media_type: str, max_bytes: int) -> int:
    """Fetch every record of `topic` and decode it; returns how many there were."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    return sum(
        _read_partition(connection, topic, index, media_type, max_bytes) for index in range(partitions)
    )


def _read_partition(
    connection: http.client.HTTPConnection, topic: str, partition: int, media_type: str, max_bytes: int
) -> int:
    offset, count = 0, 0
    while True:
        path = f"/topics/{topic}/partitions/{partition}/records?offset={offset}&max_bytes={max_bytes}"
        connection.request("GET", path, headers={"Accept": media_type})
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"{answer.status}: {answer.read(500)!r}")
        count += _arrow_rows(answer) if media_type == ARROW else _json_rows(answer)
        following = int(answer.headers["Next-Offset"])
        if following == int(answer.headers["High-Watermark"]):
            return count
        offset = following


def _arrow_rows(answer: http.client.HTTPResponse) -> int:
    with pa.ipc.open_stream(pa.PythonFile(answer, mode="r")) as reader:
        rows = sum(batch.num_rows for batch in reader)
    answer.read()
    return int(rows)


def _json_rows(answer: http.client.HTTPResponse) -> int:
    return len(_decoder.decode(answer.read()))


__all__ = ["ARROW", "JSON", "read_topic"]
