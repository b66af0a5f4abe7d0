"""The gateways of the cluster, as each says itself how it is, and what went through all of them."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec
from starlette.requests import Request

from api.console.state import console
from api.gateway import Gateway
from api.requests.access import encode_context
from api.samples import SAMPLE_S, Sample
from coordinator.access.principal import RequestContext
from coordinator.brokers.peers import CALLER
from log_tables.cluster.metadata_log import BrokerRecord
from log_tables.errors import LakelogError
from log_tables.version import VERSION

if TYPE_CHECKING:
    import aiohttp

ASKED_S = 1.0
"""How long another gateway may take to answer."""

TOLD_MAX_BYTES = 1 << 20

Told = TypeVar("Told", bound=msgspec.Struct)

FULL = 0.8
"""The part of a buffer from which on it is called nearly full."""


class GatewaySamples(msgspec.Struct, frozen=True):
    """One gateway as it says itself. `failing` names work that failed when it was last tried."""

    version: str
    buffer_limit: int
    failing: list[str]
    samples: list[Sample]


class GatewayView(NamedTuple):
    """A gateway as the page shows it; `figures` are None if it did not say."""

    broker: BrokerRecord
    is_here: bool
    is_living: bool
    leads: int
    figures: GatewaySamples | None

    @property
    def now(self) -> Sample | None:
        """Its newest sample."""
        return self.figures.samples[-1] if self.figures is not None and self.figures.samples else None

    @property
    def is_full(self) -> bool:
        """Whether its buffer is nearly full."""
        return (
            self.figures is not None
            and self.now is not None
            and (self.now.buffer_used > FULL * self.figures.buffer_limit)
        )


def own_figures(request: Request, here: Gateway) -> GatewaySamples:
    """The figures of this gateway."""
    samples = console(request).figures.samples()
    return GatewaySamples(VERSION, int(here.settings.buffer_memory), sorted(here.failures.failing), samples)


async def all_gateways(request: Request, here: Gateway, context: RequestContext) -> list[GatewayView]:
    """All gateways on the list, each with what it says itself; all are asked at a time."""
    living, known = here.brokers.living(), here.brokers.all()

    async def one(broker: BrokerRecord) -> GatewayView:
        is_here, is_living = broker.id == here.brokers.id, broker.id in living
        said = own_figures(request, here) if is_here else None
        if not is_here and is_living:
            said = await told_by(here, broker, "/console/figures", context, GatewaySamples)
        leads = sum(map(len, broker.leads.values()))
        return GatewayView(broker, is_here, is_living, leads, said)

    return list(await asyncio.gather(*(one(broker) for _, broker in sorted(known.items()))))


async def told_by(
    here: Gateway, broker: BrokerRecord, path: str, context: RequestContext, kind: type[Told]
) -> Told | None:
    """The answer of another gateway to a GET of `path`; None without one, or with one of another version."""
    headers = {CALLER: encode_context(context)}
    try:
        async with asyncio.timeout(ASKED_S):
            answer = await here.peers.forward(broker, "GET", path, headers, b"")
            content = await _content(answer)
        return msgspec.json.decode(content, type=kind) if answer.status == 200 else None
    except (TimeoutError, LakelogError, OSError, msgspec.MsgspecError):
        return None


async def _content(answer: "aiohttp.ClientResponse") -> bytes:
    """The body of an answer, as far as it came, up to TOLD_MAX_BYTES."""
    from aiohttp import ClientError  # loaded by now, and only where there is another gateway

    content = b""
    try:
        while not answer.content.at_eof() and len(content) < TOLD_MAX_BYTES:
            content += await answer.content.read(TOLD_MAX_BYTES)
    except ClientError:
        pass  # what is not whole is no answer
    finally:
        answer.close()
    return content


def summed(of_gateways: Iterable[Sequence[Sample]]) -> list[Sample]:
    """The samples of all gateways, those of the same five seconds together: of times the worst, else sums."""
    found: dict[int, Sample] = {}
    span_ms = int(SAMPLE_S * 1000)
    for samples in of_gateways:
        for each in samples:
            at_ms = each.at_ms // span_ms * span_ms
            known = found.get(at_ms)
            found[at_ms] = each if known is None else _joined(at_ms, known, each)
    ordered = [msgspec.structs.replace(each, at_ms=at_ms) for at_ms, each in sorted(found.items())]
    return ordered[:-1] if len(ordered) > 2 else ordered  # the newest may lack a gateway


def _joined(at_ms: int, one: Sample, other: Sample) -> Sample:
    return Sample(
        at_ms,
        one.produced + other.produced,
        one.produced_bytes + other.produced_bytes,
        one.fetched + other.fetched,
        one.fetched_bytes + other.fetched_bytes,
        one.commits + other.commits,
        max(one.commit_p50_ms, other.commit_p50_ms),
        max(one.commit_p99_ms, other.commit_p99_ms),
        one.errors + other.errors,
        one.buffer_used + other.buffer_used,
    )
