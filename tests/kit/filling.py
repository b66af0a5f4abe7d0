"""A gateway whose buffer is full of records that no commit takes away, and the memory of its process."""

import select
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa

from log_tables.limits import KIB
from tests.kit.gateway import RunningGateway, start_gateway
from tests.kit.produce import ARROW, JSON
from tests.kit.sockets import connect, head

TOPICS = ("a", "b", "c")
"""One topic alone takes half of the buffer."""

PARTITIONS = 4
AT_ONCE = 32

LOOK_S = 0.1
"""How long a look for a refusal is before more is sent."""


def body(form: str, count: int) -> bytes:
    """`count` records of one byte, with keys."""
    keys = [f"k{number % 97}" for number in range(count)]
    if form == "json":
        return b'{"records":[%b]}' % ",".join(f'{{"key":"{key}","value":1}}' for key in keys).encode()
    if form == "v3":
        typed = '{{"key":{{"type":"STRING","data":"{}"}},"value":{{"type":"JSON","data":1}}}}'
        return "".join(map(typed.format, keys)).encode()
    table = pa.table({"value": [b"1"] * count, "key": [key.encode() for key in keys]})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd" if form == "packed" else None)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def request(gateway: RunningGateway, topic: str, form: str, count: int, acks: str) -> bytes:
    """A request as it stands on a socket."""
    sent = body(form, count)
    path = f"{gateway.cluster}/topics/{topic}/records" if form == "v3" else f"/topics/{topic}?acks={acks}"
    media = {"json": JSON, "v3": "application/json"}.get(form, ARROW)
    return head(f"POST {path}", Content_Type=media, Content_Length=str(len(sent))) + sent


@contextmanager
def stuck_gateway(data: Path, buffer_memory: int) -> Iterator[RunningGateway]:
    """A gateway that leads all partitions of TOPICS, and commits nothing more."""
    held_up = {"linger_ms": 0, "commits_per_second_max": 0.0001, "commits_burst": 1}
    gateway = start_gateway(
        data, buffer_memory=buffer_memory, max_request_bytes=buffer_memory // 2, **held_up
    )
    try:
        for topic in TOPICS:
            gateway.create_topic(topic, PARTITIONS)
            for partition in range(PARTITIONS):
                assert gateway.produce(topic, "first", partition=partition).status_code == 200
        yield gateway
    finally:
        gateway.kill()


def fill(gateway: RunningGateway, requests: Sequence[bytes]) -> None:
    """Send each of `requests`, which are answered at once, until one is refused."""
    with connect(gateway) as connection:
        for each in requests:
            at_once = AT_ONCE if len(each) < KIB else 1
            while b" 429 " not in (lines := _answers(connection, each, at_once)):
                assert lines.count(b" 200 ") == at_once, lines


def _answers(connection: socket.socket, sent: bytes, times: int) -> bytes:
    """The lines that begin the answers to `sent`."""
    connection.sendall(sent * times)
    found, rest = b"", b""
    while found.count(b"HTTP/1.1 ") < times:
        rest += connection.recv(65_536)
        *whole, rest = rest.split(b"\r\n")
        found += b"\n".join(line for line in whole if b"HTTP/1.1 " in line)
    while b"}" not in rest[-2:]:
        rest += connection.recv(65_536)
    return found


@contextmanager
def filled(gateway: RunningGateway, requests: Sequence[bytes]) -> Iterator[int]:
    """Send each of `requests`, which wait for their commit, on connections of their own until one is refused;
    they are open within the context. Gives their number.
    """
    with ExitStack() as opened:
        number = 0
        for each in requests:
            looks = select.epoll()
            refused: list[tuple[int, int]] = []
            while not refused:
                for _ in range(AT_ONCE):
                    connection = opened.enter_context(connect(gateway))
                    connection.sendall(each)
                    looks.register(connection, select.EPOLLIN)
                    number += 1
                refused = looks.poll(LOOK_S)
            looks.close()
        yield number


def resident(gateway: RunningGateway, line: str = "VmRSS") -> int:
    """The bytes that the process has in memory; with VmHWM the most that it has had."""
    lines = Path(f"/proc/{gateway.process.pid}/status").read_text().splitlines()
    return next(int(found.split()[1]) * KIB for found in lines if found.startswith(line))


def forget_peak(gateway: RunningGateway) -> None:
    """The peak is now what there is now."""
    Path(f"/proc/{gateway.process.pid}/clear_refs").write_text("5")


def buffered(gateway: RunningGateway) -> float:
    """The bytes of the buffer that are taken, by its own count."""
    lines = gateway.client.get("/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("lakelog_buffer_used_bytes"))
