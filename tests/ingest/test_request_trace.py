"""The id of a request and its place in a trace: what is taken of a client's headers, and what is not."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.request_trace import RequestIds, RequestTrace, trace_of

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


def found(**headers: str | list[str]) -> RequestTrace:
    """The trace of a request with these headers, `_` for `-`."""
    named = {
        name.replace("_", "-").encode(): [
            each.encode("latin-1") for each in ([text] if isinstance(text, str) else text)
        ]
        for name, text in headers.items()
    }
    return trace_of(named, RequestIds("made"))


@pytest.mark.parametrize("text", ["a", "Root=1-67891233-abcdef", "A1_.:;,=@/+~-", "x" * 128])
def test_a_sane_id_is_taken(text: str) -> None:
    assert found(x_request_id=text) == RequestTrace(text)


@pytest.mark.parametrize(
    "text", ["", "x" * 129, "a b", "a\nb", "a\r", 'a"', "a'", "a\\", "\x1b[2J", "é", "a\x00", ["a", "b"], []]
)
def test_another_id_is_replaced(text: str | list[str]) -> None:
    assert found(x_request_id=text) == RequestTrace("made-1")


def test_no_two_requests_get_one_id() -> None:
    ids = RequestIds("p")
    assert [trace_of({}, ids).id for _ in range(3)] == ["p-1", "p-2", "p-3"]


@pytest.mark.parametrize(
    "text", [PARENT, PARENT.replace("01", "00"), f"cc-{TRACE}-{SPAN}-01-what-comes-later"]
)
def test_a_traceparent_is_kept(text: str) -> None:
    trace = found(traceparent=text, tracestate=["a=1", "b=2"])
    assert (trace.trace_id, trace.span_id, trace.tracestate) == (TRACE, SPAN, "a=1,b=2")
    assert trace.headers() == {
        "x-request-id": "made-1",
        "traceparent": text[:55],
        "tracestate": "a=1,b=2",
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        PARENT.upper(),
        PARENT[:-1],
        f"{PARENT}-more",
        f"ff{PARENT[2:]}",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"cc-{TRACE}-{SPAN}-01more",
        f"{PARENT}\n",
        [PARENT, PARENT],
    ],
)
def test_what_is_no_traceparent_is_dropped_with_its_state(text: str | list[str]) -> None:
    trace = found(traceparent=text, tracestate="a=1")
    assert trace == RequestTrace("made-1")
    assert (trace.trace_id, trace.span_id, trace.headers()) == ("", "", {"x-request-id": "made-1"})


@pytest.mark.parametrize("state", ["x" * 513, "a=\x01", "a=é"])
def test_a_state_that_is_too_long_or_no_text_is_dropped_alone(state: str) -> None:
    assert found(traceparent=PARENT, tracestate=state) == RequestTrace("made-1", PARENT)


@given(st.binary(max_size=200), st.binary(max_size=200), st.binary(max_size=600))
def test_whatever_comes_in_fits_in_a_line_and_in_a_header(name: bytes, parent: bytes, state: bytes) -> None:
    headers = {b"x-request-id": [name], b"traceparent": [parent], b"tracestate": [state]}
    for text in trace_of(headers, RequestIds("made")).headers().values():
        assert text.isascii()
        assert text.isprintable()


def test_a_later_task_has_the_request_of_the_one_that_started_it() -> None:
    from ingest.request_trace import CURRENT

    async def ask(name: str) -> str:
        CURRENT.set(RequestTrace(name))

        async def later() -> str:
            trace = CURRENT.get()
            return "" if trace is None else trace.id

        return await asyncio.create_task(later())

    async def both() -> list[str]:
        return [*await asyncio.gather(ask("a"), ask("b"))]

    assert asyncio.run(both()) == ["a", "b"]
