"""The network between gateways, and from clients to them: requests and answers above sockets.

A request may be refused, lost, slow, or come twice; its answer may be lost or late. Two processes may be cut
from each other, in one direction or both. Whoever asks a process that dies hears of it, as TCP tells.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
from starlette.types import ASGIApp, Message

from tests.simulation.rests import Rests
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.streams import Disconnected, MakeProtocol, Stream
from tests.simulation.threads import SimulatedEvent

CONNECT_S = 2.0
BROKEN_S = 15.0
"""After this time a connection whose other end is out of reach is broken."""


class NotSent(ConnectionError):
    """Nothing of the request came to the other side."""


class Unanswered(ConnectionError):
    """The request may have been carried out."""


class Reply(NamedTuple):
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class Sent(NamedTuple):
    method: str
    url: str
    headers: list[tuple[bytes, bytes]]
    body: bytes


@dataclass(eq=False)
class _Exchange:
    """A request and what becomes of it: `told` once, with its reply or an error."""

    tell: Callable[[Reply | ConnectionError], None]
    over: bool = False
    repeated: bool = False
    given_up: list[Callable[[], object]] = field(default_factory=list)

    def told(self, outcome: Reply | ConnectionError) -> None:
        if not self.over:
            self.over = True
            self.tell(outcome)

    def give_up(self) -> None:
        """Whoever asked waits no longer."""
        if not self.over:
            self.over = True
            for each in self.given_up:
                each()


class Weather:
    """How bad the network is."""

    def __init__(self) -> None:
        self.delay_s = 0.01
        self.slow, self.slow_s = 0.0, 1.0
        self.lost_request = self.lost_answer = self.doubled = 0.0

    def clear(self) -> None:
        """Let it be good again, and as fast as it was."""
        delay_s = self.delay_s
        self.__init__()  # type: ignore[misc]
        self.delay_s = delay_s


class Network:
    """All hosts, by the host and port of their URLs."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler, self.weather = scheduler, Weather()
        self._hosts: dict[str, tuple[Process, ASGIApp]] = {}
        self.cuts: set[tuple[str, str]] = set()
        self.rests = Rests(scheduler)
        self._exchanges: dict[Process, dict[_Exchange, None]] = {}
        self._doors: dict[str, tuple[Process, MakeProtocol]] = {}
        self._streams = 0

    def listen(self, url: str, process: Process, app: ASGIApp) -> None:
        """Let `process` answer at `url`, until it dies."""
        self._hosts[urlsplit(url).netloc] = process, app
        process.died.append(lambda: self._broken(process))

    def listen_kafka(self, address: str, process: Process, make: MakeProtocol) -> None:
        """Let `process` take connections at HOST:PORT, each with a protocol of its own."""
        self._doors[address] = process, make

    def connect(self, source: Process, address: str) -> Stream:
        """A connection of a thread of `source`. Raises Disconnected, at once or after a while."""
        process, make = self._doors.get(address, (None, None))
        if process is None or make is None or process.dead:
            self._scheduler.pause(self._delay_us() / 1e6)
            raise Disconnected(f"nobody listens at {address}")
        if self._is_cut(source, process) or self._is_cut(process, source):
            self._scheduler.pause(CONNECT_S)
            raise Disconnected(f"{address} is out of reach")
        self._streams += 1
        stream = Stream(self, source, process, self._streams)
        stream.open(make)
        return stream

    # For streams.

    broken_us = round(BROKEN_S * 1e6)

    def arrival_us(self) -> int:
        """When what is sent now arrives."""
        return self._scheduler.now_us + self._delay_us()

    def at(self, when_us: int, process: Process | None, then: Callable[[], object]) -> None:
        self._scheduler.at(when_us, process, then)

    def later(self, then: Callable[[], object], after_us: int) -> None:
        self._scheduler.at(self._scheduler.now_us + after_us, None, then)

    def loses(self, source: Process, target: Process) -> bool:
        """Whether what is sent now does not arrive, nor anything after it on its connection."""
        return self._is_cut(source, target) or self._scheduler.chance(self.weather.lost_request / 4)

    # Requests over HTTP.

    def end(self, url: str) -> None:
        self._hosts.pop(urlsplit(url).netloc, None)
        self._doors.pop(f"{urlsplit(url).hostname}:9092", None)

    def _broken(self, process: Process) -> None:
        for exchange in self._exchanges.pop(process, {}):
            self._later(None, partial(exchange.told, Unanswered("the other end has died")))

    def _delay_us(self) -> int:
        weather, random = self.weather, self._scheduler.random
        seconds = weather.delay_s * random.random()
        if weather.slow and random.random() < weather.slow:
            seconds += weather.slow_s * random.random()
        return 1 + round(seconds * 1e6)

    def _later(self, process: Process | None, then: Callable[[], None], after_us: int | None = None) -> None:
        delay = self._delay_us() if after_us is None else after_us
        self._scheduler.at(self._scheduler.now_us + delay, process, then)

    def _is_cut(self, source: Process, target: Process) -> bool:
        return (source.name, target.name) in self.cuts

    def send(
        self, source: Process, sent: Sent, tell: Callable[[Reply | ConnectionError], None]
    ) -> Callable[[], None]:
        """Send a request; `tell` is called once. Returns what gives it up."""
        exchange = _Exchange(tell)
        where = urlsplit(sent.url).netloc
        host = self._hosts.get(where)
        if host is None or host[0].dead:
            self._later(source, lambda: exchange.told(NotSent(f"nobody listens at {where}")))
            return exchange.give_up
        process, app = host
        if self._is_cut(source, process) or self._is_cut(process, source):
            error = NotSent(f"{where} is out of reach")
            self._later(source, lambda: exchange.told(error), round(CONNECT_S * 1e6))
            return exchange.give_up
        chance, weather = self._scheduler.chance, self.weather
        if chance(weather.lost_request):
            self._scheduler.note(source.name, f"{sent.method} {sent.url} is lost")
            self._break(source, exchange)
            return exchange.give_up
        self._exchanges.setdefault(process, {})[exchange] = None  # whoever dies with it under way breaks it
        # A proxy to which no answer came sends it once more, and has that answer for its client.
        exchange.repeated = _repeatable(sent) and chance(weather.doubled)
        self._later(process, lambda: self._arrive(source, process, app, sent, exchange))
        return exchange.give_up

    def _break(self, source: Process, exchange: _Exchange) -> None:
        error = Unanswered("the connection is broken")
        self._later(source, lambda: exchange.told(error), round(BROKEN_S * 1e6))

    def _arrive(
        self, source: Process, process: Process, app: ASGIApp, sent: Sent, exchange: _Exchange
    ) -> None:
        if (source.name, process.name) in self.cuts:
            self._break(source, exchange)
            return
        self._scheduler.note(process.name, f"is asked {sent.method} {urlsplit(sent.url).path}")

        def answered(outcome: Reply | ConnectionError) -> None:
            if exchange.repeated:
                exchange.repeated = False
                self._later(process, lambda: self._arrive(source, process, app, sent, exchange))
                return
            self._exchanges.get(process, {}).pop(exchange, None)
            lost = self._is_cut(process, source) or self._scheduler.chance(self.weather.lost_answer)
            if lost:
                self._scheduler.note(process.name, f"the answer to {sent.method} {sent.url} is lost")
                self._break(source, exchange)
            else:
                self._later(source, lambda: exchange.told(outcome))

        process.loop.call_soon(
            lambda: process.loop.create_task(self._serve(app, process, sent, exchange, answered))
        )

    async def _serve(
        self,
        app: ASGIApp,
        process: Process,
        sent: Sent,
        exchange: _Exchange,
        answered: Callable[[Reply | ConnectionError], None],
    ) -> None:
        try:
            await _serve(app, process.loop, sent, exchange, answered)
        except Exception as error:  # noqa: BLE001 -- an application answers every request
            self._scheduler.failed(f"{process.name} amid {sent.method} {sent.url}", error)
            answered(Unanswered("the application has failed"))


def _repeatable(sent: Sent) -> bool:
    """Whether the request may be sent twice: else its client has asked for two of what it does."""
    return any(name.lower() in (b"producer-id", b"idempotency-key") for name, _ in sent.headers)


async def _serve(
    app: ASGIApp,
    loop: asyncio.AbstractEventLoop,
    sent: Sent,
    exchange: _Exchange,
    answered: Callable[[Reply | ConnectionError], None],
) -> None:
    """One request to an application, as a server does it."""
    parts = urlsplit(sent.url)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": sent.method,
        "scheme": "http",
        "path": httpx.URL(sent.url).path,
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in sent.headers],
        "client": ("127.0.0.1", 1),
        "server": (parts.hostname, parts.port),
        "state": {},
    }
    messages = iter([{"type": "http.request", "body": sent.body, "more_body": False}])
    gone: asyncio.Future[None] = loop.create_future()
    exchange.given_up.append(lambda: loop.call_soon(_set, gone, None))
    status, headers, body = 0, [], bytearray()

    async def receive() -> Message:
        for message in messages:
            return message
        await asyncio.shield(gone)
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status, headers = message["status"], [*message.get("headers", [])]
        else:
            body.extend(message.get("body", b""))

    await app(scope, receive, send)
    answered(Reply(status, headers, bytes(body)))


def _set(future: "asyncio.Future[Any]", result: object) -> None:
    if not future.done():
        future.set_result(result)


class SimulatedTransport(httpx.BaseTransport):
    """The network for a thread of a client."""

    def __init__(self, network: Network, source: Process) -> None:
        self._network, self._source = network, source

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self._network.rests.rest(self._source)
        outcome: Reply | ConnectionError | None = None
        done = SimulatedEvent()

        def tell(told: Reply | ConnectionError) -> None:
            nonlocal outcome
            outcome = told
            done.set()

        sent = Sent(request.method, str(request.url), request.headers.raw, request.read())
        give_up = self._network.send(self._source, sent, tell)
        if not done.wait(request.extensions.get("timeout", {}).get("read")):
            give_up()
            raise httpx.ReadTimeout("no answer came in time", request=request)
        if isinstance(outcome, NotSent):
            raise httpx.ConnectError(str(outcome), request=request)
        if isinstance(outcome, Reply):
            return httpx.Response(outcome.status, headers=outcome.headers, content=outcome.body)
        raise httpx.RemoteProtocolError(str(outcome), request=request)


class PeerSession:
    """The part of an aiohttp session that `Peers` needs."""

    def __init__(self, network: Network, source: Process) -> None:
        self._network, self._source = network, source

    async def close(self) -> None:
        """Nothing is open."""

    def request(
        self,
        method: str,
        url: Any,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        data: bytes = b"",
        **_: object,
    ) -> "_Asked":
        whole = httpx.URL(str(url), params=params) if params else httpx.URL(str(url))
        raw = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        sent = Sent(method, str(whole), [*raw, (b"content-length", str(len(data)).encode())], data)
        return _Asked(self._network, self._source, sent)


class _Asked:
    """A request of a session: to be awaited, or a context of its answer."""

    def __init__(self, network: Network, source: Process, sent: Sent) -> None:
        self._network, self._source, self._sent = network, source, sent

    async def _answer(self) -> "PeerAnswer":
        import aiohttp

        told: asyncio.Future[Reply | ConnectionError] = asyncio.get_running_loop().create_future()

        def tell(outcome: Reply | ConnectionError) -> None:
            self._source.loop.call_soon(lambda: _set(told, outcome))

        give_up = self._network.send(self._source, self._sent, tell)
        try:
            outcome = await told
        except asyncio.CancelledError:
            give_up()
            raise
        if isinstance(outcome, NotSent):
            raise aiohttp.ConnectionTimeoutError(str(outcome))
        if isinstance(outcome, ConnectionError):
            raise aiohttp.ServerDisconnectedError(str(outcome))
        return PeerAnswer(outcome)

    def __await__(self) -> Iterator[Any]:
        return self._answer().__await__()

    async def __aenter__(self) -> "PeerAnswer":
        return await self._answer()

    async def __aexit__(self, *_: object) -> None:
        """It was read."""


class PeerAnswer:
    """The part of an aiohttp answer that `Peers` needs, and whoever forwards."""

    def __init__(self, reply: Reply) -> None:
        from multidict import CIMultiDict

        self.status = reply.status
        self.headers = CIMultiDict(
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in reply.headers
        )
        self.raw_headers = tuple(reply.headers)
        self._body, self.content_length = reply.body, len(reply.body)
        self.content = self

    async def read(self) -> bytes:
        return self._body

    async def iter_any(self) -> Any:
        yield self._body

    def close(self) -> None:
        """Nothing is open."""

    release = close
