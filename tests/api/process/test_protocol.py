"""The bounds of one connection. A request beyond a bound gets an answer, and the connection is closed."""

import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from api.process.protocol import check_connections
from coordinator.brokers.peers import TARGET
from log_tables.clock import timer
from log_tables.limits import (
    HEAD_MAX_BYTES,
    HEADER_LINES_MAX,
    KIB,
    MIB,
    PEER_KEPT_S,
    RESERVED_CONNECTIONS,
    RESERVED_PEER_CONNECTIONS,
    SMALL_BODY_MAX_BYTES,
    UNSENT_MAX_BYTES,
)
from tests.kit.certificates import Authority
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.sockets import connect, head, hear, tell
from tests.kit.support import WAIT_S, wait_until

JSON = "application/vnd.kafka.json.v2+json"
CLOSE = {"Connection": "close"}
HALF = head("GET /health")[:-2]
"""A head whose last line is missing."""

CHUNKED = head("POST /topics/t", Content_Type=JSON, Transfer_Encoding="chunked")
SIZED = head("POST /topics/t", Content_Type=JSON, Content_Length="1000")
UPGRADE = {"Connection": "Upgrade", "Upgrade": "h2c"}

RECEIVE_MS, IDLE_MS, SEND_MS, CONNECTIONS = 1_000, 2_000 * PEER_KEPT_S, 1_000, 40


@pytest.fixture(scope="module", params=["http", pytest.param("https", marks=pytest.mark.torture)])
def strict(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[RunningGateway]:
    """A gateway with little patience, and few connections."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    pair, context = authority.pair("gateway"), authority.trusted()
    files = {"ssl_certfile": pair.certfile, "ssl_keyfile": pair.keyfile, "peer_ca_certs": authority.ca_file}
    with running_gateway(
        tmp_path_factory.mktemp("strict"),
        max_connections=CONNECTIONS,
        receive_timeout_ms=RECEIVE_MS,
        connections_max_idle_ms=IDLE_MS,
        send_timeout_ms=SEND_MS,
        linger_ms=0,
        **(files if request.param == "https" else {}),
    ) as gateway:
        if request.param == "https":
            gateway.client.close()
            gateway.client = httpx.Client(base_url=gateway.url, timeout=WAIT_S, verify=context)
            gateway.ssl_context = context
        gateway.create_topic("t")
        yield gateway


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ([b"GET /" + b"x" * MIB], 414),
        ([HALF, b"a: " + b"x" * MIB], 431),
        ([HALF, b"x" * MIB], 431),
        ([HALF, b"a: b\r\n" * (HEADER_LINES_MAX + 1), b"\r\n"], 431),
        ([b"\r\n" * MIB], 431),
        ([head("GET /health"), HALF, b"a: " + b"x" * MIB], 431),
        ([CHUNKED, b"2;", b"x" * MIB], 431),
        ([CHUNKED, b"2\r\n{}\r\n0\r\na: ", b"x" * MIB], 431),
        ([CHUNKED, b"2\r\n{}\r\n0\r\n", b"a: b\r\n" * (HEADER_LINES_MAX + 1), b"\r\n"], 431),
        ([CHUNKED, b"1\r\n \r\n" * 20_000], 400),
        ([CHUNKED, b"ffffffffffffffffffff\r\n"], 400),
        ([head("POST /topics/t", Transfer_Encoding="chunked", Content_Length="5"), b"0\r\n\r\n"], 400),
        ([b"POST /topics/t HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n"], 400),
        ([head("POST /topics/t", Content_Type=JSON, Content_Length="2", **UPGRADE), b"{}"], 400),
        ([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], 400),
        ([b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n"], 400),
        ([b"GET http://127.0.0.1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"], 400),
        ([b"\x16\x03\x01\x02\x00\x01\x00\x01"], 400),
        ([head("POST /topics/t", Content_Type=JSON, Content_Length=str(2**40))], 413),
        ([head("GET /health", Content_Length=str(2**62))], 413),
        ([HALF], 408),
        ([SIZED, b"{"], 408),
        ([CHUNKED, b"2\r\n{ \r\n"], 408),
        ([head("GET /health", Content_Length="9")], 408),
        ([head("DELETE /nowhere", Content_Length="9")], 408),
    ],
    ids=lambda value: (
        value if isinstance(value, int) else value[-1][:20].decode("latin-1").strip() or "blank"
    ),
)
def test_what_is_beyond_a_bound_is_answered_and_closed(
    strict: RunningGateway, sent: list[bytes], code: int
) -> None:
    heard = tell(strict, *sent)
    assert heard.statuses[-1] == heard.error_code == code
    assert b"connection: close" in heard.data.lower()


def test_a_head_as_large_as_allowed_is_read(strict: RunningGateway) -> None:
    rest = b"Connection: close\r\n\r\n"
    space = HEAD_MAX_BYTES - len(HALF) - len(rest) - 100
    assert tell(strict, HALF, b"a: ", b"x" * space, b"\r\n", rest).statuses == [200]
    lines = b"a: b\r\n" * (HEADER_LINES_MAX - HALF.count(b"\r\n"))
    assert tell(strict, HALF, lines, rest).statuses == [200]


def test_as_many_trailers_as_allowed_are_passed_over(strict: RunningGateway) -> None:
    body = b'{"records":[{"value":1}]}'
    whole = head("POST /topics/t", Content_Type=JSON, Transfer_Encoding="chunked", **CLOSE)
    lines = b"a: b\r\n" * HEADER_LINES_MAX
    assert tell(strict, whole, b"%x\r\n%s\r\n0\r\n" % (len(body), body), lines, b"\r\n").statuses == [200]


@pytest.mark.parametrize("sent", [b"", head("GET /health")], ids=["nothing", "one request"])
def test_an_idle_connection_is_closed(strict: RunningGateway, sent: bytes) -> None:
    assert tell(strict, sent).statuses == [200] * bool(sent)


def test_an_upgrade_is_passed_over_and_the_request_answered(strict: RunningGateway) -> None:
    heard = tell(strict, head("GET /health", **UPGRADE), b"PRI * HTTP/2.0\r\n\r\n")
    assert heard.statuses == [200]
    assert b"connection: close" in heard.data


def test_a_client_that_takes_an_upgrade_for_granted_still_reads_the_answer(strict: RunningGateway) -> None:
    heard = tell(strict, head("GET /health", **UPGRADE), b"x" * MIB)
    assert heard.statuses == [200]


def test_pipelined_requests_are_answered_in_their_order_however_many(strict: RunningGateway) -> None:
    paths = ["/health", "/topics/none", "/topics"] * 500
    heard = tell(strict, b"".join(head(f"GET {path}") for path in paths), head("GET /health", **CLOSE))
    assert heard.statuses == [200, 404, 200] * 500 + [200]


@pytest.mark.parametrize("before", [b"", CHUNKED + b"0\r\n\r\n"], ids=["alone", "behind a body"])
def test_the_smallest_requests_are_pipelined_however_many(strict: RunningGateway, before: bytes) -> None:
    smallest = b"GET / HTTP/1.1\r\n\r\n"
    heard = tell(strict, before + smallest * 300 + head("GET /health", **CLOSE))
    assert len(heard.statuses) == bool(before) + 301
    assert heard.statuses[-1] == 200


@pytest.mark.parametrize(
    "wrong", [b"\x16\x03", head("GET /health", Content_Length="x"), CHUNKED + b"no size\r\n"]
)
def test_what_is_wrong_behind_other_requests_is_told_when_they_are_answered(
    strict: RunningGateway, wrong: bytes
) -> None:
    assert tell(strict, head("GET /health") * 3 + wrong).statuses == [200] * 3 + [400]


def test_a_body_that_is_not_http_is_one_error(strict: RunningGateway) -> None:
    def failed() -> float:
        text = strict.client.get("/metrics").text.splitlines()
        return sum(float(line.split()[1]) for line in text if line.startswith("lakelog_request_errors_total"))

    before = failed()
    assert tell(strict, CHUNKED, b"2\r\n{}no size\r\n").statuses == [400]
    assert tell(strict, head("DELETE /nowhere", Content_Length="2", **CLOSE), b"{}").statuses == [404]
    assert failed() == before + 2


def test_requests_sent_behind_a_long_poll_wait_unread(strict: RunningGateway) -> None:
    """A poll looks whether its client is still there, which must not take in what is behind it."""
    connection = connect(strict)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * KIB)
    connection.sendall(head("GET /topics/t/partitions/0/records?offset=latest&timeout=20000"))
    connection.settimeout(1.0)
    sent = 0
    with suppress(TimeoutError):
        while sent < 64 * MIB:
            sent += connection.send(head("GET /health") * 1_000)
    connection.close()
    assert sent < 32 * MIB  # what the kernel's buffers hold, and then nothing more is taken


def test_a_request_with_expectation_is_told_to_go_on_only_if_it_may(strict: RunningGateway) -> None:
    body = b'{"records":[{"value":1}]}'
    expects = {"Content_Type": JSON, "Expect": "100-continue", **CLOSE}
    connection = connect(strict)
    connection.sendall(head("POST /topics/t", Content_Length=str(len(body)), **expects))
    assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    connection.sendall(body)
    assert hear(connection).statuses == [200]
    assert tell(strict, head("POST /topics/t", Content_Length=str(2**40), **expects)).statuses == [413]


def test_an_answer_comes_in_one_piece_and_one_without_a_body_comes_too(strict: RunningGateway) -> None:
    with connect(strict) as connection:
        for _ in range(20):
            connection.sendall(head("GET /health"))
            whole = connection.recv(65_536)
            assert whole.startswith(b"HTTP/1.1 200")
            assert whole.endswith(b"}")
            connection.sendall(head("HEAD /health"))
            alone = connection.recv(65_536)
            assert alone.startswith(b"HTTP/1.1 405")
            assert alone.endswith(b"\r\n\r\n")


def test_an_answer_that_nobody_takes_is_given_up(strict: RunningGateway) -> None:
    for _ in range(4):
        assert strict.produce("t", "x" * 1_000_000, partition=0).status_code == 200
    connection = connect(strict)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
    connection.sendall(head("GET /topics/t/partitions/0/records") * 8)
    wait_until(lambda: connections(strict) == 1, "the one who reads nothing is cut off")
    connection.close()


def test_who_takes_an_answer_slowly_is_not_cut_off(strict: RunningGateway) -> None:
    """The kernel takes more of it only when a third of what it holds is gone."""
    for _ in range(4):
        assert strict.produce("t", "x" * 1_000_000, partition=0).status_code == 200
    connection = connect(strict)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * KIB)
    connection.sendall(head("GET /topics/t/partitions/0/records") * 8)
    wait_until(lambda: connections(strict) == 2, "only this one beside the one who asks")
    begin, got = timer(), 0
    while timer() - begin < 3 * SEND_MS / 1_000:
        due = begin + got / (64 * KIB)
        wait_until(lambda: timer() >= due, "the next piece is due")  # noqa: B023
        got += len(connection.recv(4 * KIB))
    assert connections(strict) == 2  # else what the kernel has is the end of it
    connection.close()


def connections(gateway: RunningGateway) -> int:
    """How many the gateway has, with that of the client who asks."""
    (line,) = (
        line
        for line in gateway.client.get("/metrics").text.splitlines()
        if line.startswith("lakelog_connections ")
    )
    return int(float(line.split()[1]))


@pytest.fixture
def full(tmp_path: Path) -> Iterator[tuple[RunningGateway, list[socket.socket]]]:
    """A gateway with all connections that it takes, one of them the client's, and these."""
    with running_gateway(tmp_path, max_connections=CONNECTIONS) as gateway:
        assert gateway.client.get("/health").status_code == 200
        held = [connect(gateway) for _ in range(CONNECTIONS - 1)]
        wait_until(lambda: connections(gateway) == CONNECTIONS, "all are there")
        yield gateway, held
        for connection in held:
            connection.close()


SPARE = RESERVED_CONNECTIONS + RESERVED_PEER_CONNECTIONS


def test_more_connections_than_allowed_are_told_so_but_an_operator_is_let_in(
    full: tuple[RunningGateway, list[socket.socket]],
) -> None:
    gateway, held = full
    assert tell(gateway, head("GET /health")).statuses == [200]
    refused = tell(gateway, head("GET /topics"))
    assert (refused.statuses, refused.error_code) == ([503], 50003)
    assert b"retry-after" in refused.data.lower()
    held += [connect(gateway) for _ in range(SPARE)]
    wait_until(lambda: connections(gateway) == CONNECTIONS + SPARE, "the spare ones, too")
    assert tell(gateway, head("GET /health")).statuses == [200]
    assert hear(held[CONNECTIONS - 1]).statuses == [503]  # it was silent for longest
    for connection in held:
        connection.close()
    wait_until(lambda: connections(gateway) == 1, "they are gone")
    assert tell(gateway, head("GET /topics", **CLOSE)).statuses == [200]


def test_other_gateways_are_let_in_however_many_connections_ask_for_nothing(
    full: tuple[RunningGateway, list[socket.socket]],
) -> None:
    gateway, held = full
    asked = head("GET /peer/ping", **{TARGET: "of another process"})
    for more in (0, SPARE, 2 * SPARE):
        held += [connect(gateway) for _ in range(more)]
        assert tell(gateway, asked).statuses == [421]  # the gate behind has looked at it


def resident(gateway: RunningGateway) -> int:
    pages = int(Path(f"/proc/{gateway.process.pid}/statm").read_text().split()[1])
    return pages * 4 * KIB


def slowest_health(gateway: RunningGateway, connection: socket.socket, data: bytes) -> float:
    """Seconds that the slowest of the others' requests took while `data` was sent, as far as it was taken."""
    connection.setblocking(False)
    slowest, left = 0.0, memoryview(data)
    while left:
        try:
            left = left[connection.send(left[:MIB]) :]
        except BlockingIOError:
            pass
        except ConnectionError:
            break
        begin = timer()
        assert gateway.client.get("/health").status_code == 200
        slowest = max(slowest, timer() - begin)
    connection.close()
    return slowest


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc: it tells the memory")
@pytest.mark.parametrize("size", [8 * MIB, pytest.param(170 * MIB, marks=pytest.mark.torture)])
@pytest.mark.parametrize("begin", [HALF + b"a: ", b"GET /"], ids=["header", "url"])
def test_an_endless_head_stops_nobody_and_takes_no_memory(
    gateway: RunningGateway, size: int, begin: bytes
) -> None:
    gateway.client.get("/health")
    before = resident(gateway)
    assert slowest_health(gateway, connect(gateway), begin + b"x" * size) < 2.0
    assert resident(gateway) - before < 16 * MIB


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc: it tells the memory")
@pytest.mark.parametrize("count", [60, pytest.param(1_200, marks=pytest.mark.torture)])
def test_bodies_that_do_not_end_take_what_is_there_for_them_and_no_more(tmp_path: Path, count: int) -> None:
    size = SMALL_BODY_MAX_BYTES
    part = head("POST /consumers/hold", Content_Type="application/json", Content_Length=str(size))
    with running_gateway(tmp_path, receive_timeout_ms=2_000) as gateway:
        gateway.create_topic("t")
        before = resident(gateway)
        held = [connect(gateway) for _ in range(count)]
        for connection in held:
            connection.setblocking(False)
            connection.send(part + b"x" * (size - len(part) - 10))
        assert gateway.produce("t", "all the same").status_code == 200
        # Their share of the buffer, and of each what was read of it before it was refused.
        assert resident(gateway) - before < 100 * MIB + count * 128 * KIB
        answers = []
        for connection in held:
            connection.settimeout(30)
            answers.append(int(connection.recv(65_536)[9:12]))
            connection.close()
        assert set(answers) == {408, 429}
        wait_until(
            lambda: gateway.client.post("/consumers/hold", json={}).status_code == 200, "there is room"
        )


@dataclass
class Slow:
    """A connection whose client takes nothing."""

    unsent: int
    dropped: bool = False

    def look(self, now: float) -> None:
        """Do nothing: the deadline of this connection never comes."""

    def unsent_bytes(self, _now: float) -> int:
        return self.unsent

    def drop(self) -> None:
        self.dropped = True


def test_of_too_many_unsent_answers_the_largest_are_dropped_until_the_rest_is_not_too_much() -> None:
    most = UNSENT_MAX_BYTES
    within = [Slow(most // 2), Slow(most // 2)]
    check_connections(within, 0.0)
    assert not any(each.dropped for each in within)
    beyond = [Slow(1), Slow(most // 2), Slow(most), Slow(most // 4)]
    check_connections(beyond, 0.0)
    assert [each.dropped for each in beyond] == [False, False, True, False]


def test_a_connection_that_cannot_be_looked_at_is_dropped_and_the_others_are_looked_at() -> None:
    class Broken(Slow):
        def look(self, now: float) -> None:  # noqa: ARG002 -- as that of a connection
            raise RuntimeError("gone meanwhile")

    seen = [Broken(1), Slow(2 * UNSENT_MAX_BYTES)]
    check_connections(seen, 0.0)
    assert [each.dropped for each in seen] == [True, True]
