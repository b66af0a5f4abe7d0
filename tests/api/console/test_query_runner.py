"""The processes of queries: one is kept, one is ended when nobody waits, and none outlives the gateway."""

import json
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from api.console.query_runner import QUERIES_MAX, WAITING_MAX
from tests.kit.gateway import RunningGateway, running_gateway, start_gateway
from tests.kit.processes import alive, children, command, send, state, status
from tests.kit.support import wait_until

LONG = (
    "select count(*) from generate_series(1, 10000000) a, generate_series(1, 10000000) b "
    "where (a.value * b.value) % 7 = 3"
)
SHORT = "select sum(value) as total from generate_series(1, 4)"


@pytest.fixture(scope="module")
def queried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway for all tests of this file that do not end it."""
    with running_gateway(tmp_path_factory.mktemp("queried")) as gateway:
        yield gateway


def ask(gateway: RunningGateway, sql: str) -> httpx.Response:
    return httpx.post(f"{gateway.url}/console/sql", json={"sql": sql}, timeout=180)


def processes(gateway: RunningGateway) -> set[int]:
    """The ids of the processes of the gateway that answer queries."""
    return {pid for pid in children(gateway.process.pid) if "log_tables.sql.server" in command(pid)}


def works(pid: int) -> bool:
    """Whether a process has had a processor for longer than its start takes."""
    with suppress(OSError):
        return int(status(pid)[11]) > 150  # hundredths of a second
    return False


class LongQuery:
    """A query that runs until its client leaves."""

    def __init__(self, gateway: RunningGateway) -> None:
        self.client = httpx.Client(base_url=gateway.url, timeout=180)
        self.stream = self.client.stream("POST", "/console/sql", json={"sql": LONG})
        self.answer = self.stream.__enter__()
        self.lines = self.answer.iter_lines()
        assert next(self.lines).startswith('{"columns"')

    def leave(self) -> None:
        self.client.close()

    def rest(self) -> str:
        """The last line, once the query is over."""
        (line,) = self.lines
        self.leave()
        return line


def unanswered(gateway: RunningGateway, sql: str) -> socket.socket:
    """The connection of a query that nobody waits for once it is closed."""
    url, body = httpx.URL(gateway.url), json.dumps({"sql": sql}).encode()
    head = f"POST /console/sql HTTP/1.1\r\nHost: {url.netloc.decode()}\r\nContent-Type: application/json\r\n"
    made = socket.create_connection((url.host, url.port or 80))
    made.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return made


def busy(gateway: RunningGateway) -> set[int]:
    return {pid for pid in processes(gateway) if works(pid)}


def test_a_process_is_kept_for_the_next_query(queried: RunningGateway) -> None:
    assert '{"rows":[["10"]]}' in ask(queried, SHORT).text
    before = processes(queried)
    assert len(before) == 1
    for _ in range(3):
        assert ask(queried, SHORT).is_success
        assert ask(queried, "selec").status_code == 400
    assert processes(queried) == before


def test_a_query_whose_client_leaves_is_ended_and_the_next_one_runs(queried: RunningGateway) -> None:
    query = LongQuery(queried)
    wait_until(lambda: bool(busy(queried)), "it runs")
    running = busy(queried)
    query.leave()
    wait_until(lambda: not any(map(alive, running)), "its process is gone")
    assert ask(queried, SHORT).is_success


def test_a_query_whose_process_is_killed_fails_and_the_next_one_runs(queried: RunningGateway) -> None:
    query = LongQuery(queried)
    wait_until(lambda: bool(busy(queried)), "it runs")
    send(signal.SIGKILL, busy(queried))
    told = query.rest()
    assert told.startswith('{"error":{"error_code":50003')
    assert "SIGKILL" in told
    assert ask(queried, SHORT).is_success


def test_an_idle_process_that_is_killed_is_replaced(queried: RunningGateway) -> None:
    assert ask(queried, SHORT).is_success
    before = processes(queried)
    send(signal.SIGKILL, before)
    wait_until(lambda: all(state(pid) in ("", "Z") for pid in before), "it is dead")
    wait_until(lambda: ask(queried, SHORT).is_success, "another one answers")
    assert processes(queried).isdisjoint(before)


def test_a_query_that_crashes_its_process_says_so(queried: RunningGateway) -> None:
    query = LongQuery(queried)
    wait_until(lambda: bool(busy(queried)), "it runs")
    send(signal.SIGSEGV, busy(queried))
    assert "too much for its process" in query.rest()
    assert ask(queried, SHORT).is_success


def test_a_query_that_is_too_deep_for_its_process_is_refused_before_that_plans_it(
    queried: RunningGateway,
) -> None:
    assert ask(queried, SHORT).is_success
    before = processes(queried)
    answer = ask(queried, "select " + "+".join(["1"] * 15_000))
    assert (answer.status_code, "14999 operators" in answer.json()["message"]) == (400, True)
    assert before <= processes(queried)


def test_so_many_queries_run_at_once_and_one_more_waits(queried: RunningGateway) -> None:
    queries = [LongQuery(queried) for _ in range(QUERIES_MAX)]
    with ThreadPoolExecutor(1) as pool:
        waiting: Future[httpx.Response] = pool.submit(ask, queried, SHORT)
        refused = waiting.result()
        assert (refused.status_code, refused.json()["error_code"]) == (429, 42901)
        assert int(refused.headers["Retry-After"]) > 0
        waiting = pool.submit(ask, queried, SHORT)
        queries[0].leave()
        assert waiting.result().is_success
    queries[1].leave()


def test_a_query_whose_client_leaves_while_it_waits_is_not_begun(queried: RunningGateway) -> None:
    queries = [LongQuery(queried) for _ in range(QUERIES_MAX)]
    wait_until(lambda: len(processes(queried)) > QUERIES_MAX, "another process is ready")
    before = processes(queried)
    waiting: list[socket.socket] = []

    def full() -> bool:
        """Fill the queue with queries, and say whether the next one is refused. Some queries of an earlier
        call may have given up by now.
        """
        waiting.extend(unanswered(queried, SHORT) for _ in range(WAITING_MAX))
        return "wait already" in ask(queried, SHORT).text

    wait_until(full, "no more may wait")
    for each in waiting:
        each.close()
    assert "have run here" in ask(queried, SHORT).text, "none of them takes a place any longer"
    queries[0].leave()
    assert ask(queried, SHORT).is_success
    assert len(processes(queried) - before) <= 1, "only the query that was ended needs another process"
    queries[1].leave()


@pytest.mark.torture  # it waits for ten seconds
def test_a_process_that_does_not_start_is_given_up(tmp_path: Path) -> None:
    with running_gateway(tmp_path / "data") as gateway:
        assert gateway.client.get("/console/sql").is_success
        wait_until(lambda: len(processes(gateway)) == 1, "one is started")
        (stuck,) = processes(gateway)
        send(signal.SIGSTOP, [stuck])
        answer = ask(gateway, SHORT)
        assert (answer.status_code, "could open the root" in answer.text) == (503, True), answer.text
        assert ask(gateway, SHORT).is_success
        wait_until(lambda: not alive(stuck), "it is ended")


def test_a_query_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with running_gateway(tmp_path / "data", sql_timeout_ms=1_000) as gateway:
        told = LongQuery(gateway).rest()
        assert "longer than 1 s (sql_timeout_ms)" in told
        assert ask(gateway, SHORT).is_success


@pytest.mark.parametrize("end", [RunningGateway.stop, RunningGateway.kill])
def test_no_process_outlives_its_gateway(tmp_path: Path, end: Callable[[RunningGateway], int]) -> None:
    gateway = start_gateway(tmp_path / "data")
    query = LongQuery(gateway)
    wait_until(lambda: len(processes(gateway)) == 2, "a second process is ready for the next query")
    running = processes(gateway)
    ending = threading.Thread(target=end, args=(gateway,))
    ending.start()
    wait_until(lambda: not any(map(alive, running)), "all are gone")
    ending.join()
    query.leave()
