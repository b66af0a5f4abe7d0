"""Compressed bodies: taken by every route that takes records, as if they had come as they are."""

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.errors import MalformedBody, RequestTooLarge, UnsupportedMediaType
from api.requests.body import coding_of, unpacked
from ingest.buffer import Buffer
from log_tables.errors import BufferFull
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.packing import PACKERS
from tests.kit.produce import ARROW, ends, post, records, refused, stream
from tests.kit.routes import BRINGS_RECORDS, JSON, World, routes

MIB = 1 << 20
CODINGS = sorted(PACKERS)
EVERY_ROUTE = sorted(BRINGS_RECORDS)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway that takes bodies of at most 1 MiB."""
    root = tmp_path_factory.mktemp("small")
    with running_gateway(root, max_request_bytes=MIB, buffer_memory=8 * MIB, linger_ms=0) as running:
        yield running


@pytest.fixture(scope="module")
def world(small: RunningGateway) -> World:
    return World(small, small.create_topic("world", 2))


def body_for(world: World, path: str) -> bytes:
    """A body with one record, for a route by POST."""
    (route,) = (
        each for each in routes(world.gateway.client) if (each.method, each.template) == ("POST", path)
    )
    return json.dumps(world.body_of(route)).encode()


def send(world: World, path: str, body: bytes, *codings: str, media_type: str = JSON) -> httpx.Response:
    filled = re.sub(r"\{(\w+)\}", lambda found: world.names[found[1]], path)
    headers = [("Content-Type", media_type), *(("Content-Encoding", coding) for coding in codings)]
    return world.gateway.client.post(filled, content=body, headers=headers)


def total(world: World) -> int:
    return sum(ends(world.gateway, world.topic))


def is_free(gateway: RunningGateway) -> bool:
    """Whether all room of the buffer is free again."""
    return "lakelog_buffer_used_bytes 0.0" in gateway.client.get("/metrics").text


@pytest.mark.parametrize("coding", [*CODINGS, "x-gzip", "GZIP", "identity, gzip", "identity"])
@pytest.mark.parametrize("path", EVERY_ROUTE)
def test_every_route_with_records_takes_them_compressed(world: World, path: str, coding: str) -> None:
    before = total(world)
    pack = PACKERS.get("zstd" if coding == "zstd" else "gzip", bytes)
    body = body_for(world, path)
    answer = send(world, path, body if coding == "identity" else pack(body), coding)
    assert answer.status_code in (200, 207), answer.text
    assert total(world) == before + 1
    assert is_free(world.gateway)


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("path", ["/topics/{topic}", "/topics/{topic}/partitions/{partition}"])
def test_arrow_comes_compressed(world: World, path: str, coding: str) -> None:
    before = total(world)
    body = PACKERS[coding](stream(pa.table({"value": [b"v"] * 5_000})))
    assert send(world, path, body, coding, media_type=ARROW).status_code == 200
    assert total(world) == before + 5_000


@pytest.mark.parametrize("coding", CODINGS)
def test_a_transaction_comes_as_compressed_arrow(world: World, coding: str) -> None:
    before = total(world)
    body = PACKERS[coding](stream(pa.table({"topic": [world.topic], "value": [b"v"]})))
    answer = send(world, "/consumers/{group}/transactions", body, coding, media_type=ARROW)
    assert answer.status_code == 200, answer.text
    assert total(world) == before + 1


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("path", EVERY_ROUTE)
def test_half_a_body_and_one_that_is_no_such_coding_are_refused(world: World, path: str, coding: str) -> None:
    before, body = total(world), PACKERS[coding](body_for(world, path))
    other = next(each for each in CODINGS if each != coding)
    for broken in (
        body[:-1],
        body[: len(body) // 2],
        body + b"x",
        body_for(world, path),
        PACKERS[other](b"{}"),
    ):
        refused(send(world, path, broken, coding), 400, 400, f"no whole {coding}")
    assert total(world) == before
    assert is_free(world.gateway)


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("path", EVERY_ROUTE)
def test_a_bomb_is_refused_before_it_is_large(world: World, path: str, coding: str) -> None:
    before, bomb = total(world), PACKERS[coding](bytes(64 * MIB))
    assert len(bomb) < MIB
    refused(send(world, path, bomb, coding), 413, 413, f"more than the {MIB} bytes")
    assert total(world) == before
    assert is_free(world.gateway)


@pytest.mark.parametrize(
    "codings", [("gzip, gzip",), ("gzip", "gzip"), ("gzip", "zstd"), ("gzip, identity, gzip",)]
)
@pytest.mark.parametrize("path", EVERY_ROUTE)
def test_a_body_that_is_compressed_twice_is_refused(
    world: World, path: str, codings: tuple[str, ...]
) -> None:
    before, body = total(world), gzip.compress(gzip.compress(body_for(world, path)))
    refused(send(world, path, body, *codings), 415, 415, "one of them only")
    # One that says it was compressed once is no JSON, and is not unpacked again.
    assert send(world, path, body, "gzip").status_code == 400
    assert total(world) == before


@pytest.mark.parametrize("coding", ["br", "deflate", "compress", "*", "gzip;q=1", "snappy", "lz4"])
@pytest.mark.parametrize("path", EVERY_ROUTE)
def test_an_unknown_coding_is_told_which_are_known(world: World, path: str, coding: str) -> None:
    before = total(world)
    refused(send(world, path, body_for(world, path), coding), 415, 415, "send gzip, zstd or identity")
    assert total(world) == before


def test_a_transaction_is_repeated_compressed_or_not(world: World) -> None:
    path, body = "/consumers/{group}/transactions", body_for(world, "/consumers/{group}/transactions")
    filled, before = path.replace("{group}", world.names["group"]), total(world)
    headers = {"Content-Type": JSON, "Idempotency-Key": "k"}
    answers = [
        world.gateway.client.post(filled, content=packed, headers={**headers, **coded})
        for packed, coded in (
            (body, {}),
            (gzip.compress(body), {"Content-Encoding": "gzip"}),
            (PACKERS["zstd"](body), {"Content-Encoding": "zstd"}),
        )
    ]
    assert [answer.json() for answer in answers] == [answers[0].json()] * 3
    assert total(world) == before + 1


def test_values_are_repeated_compressed_or_not(world: World) -> None:
    before = total(world)
    path, key = f"/topics/{world.topic}/values", "once"
    for body, coded in ((b"[1]", {}), (gzip.compress(b"[1]"), {"Content_Encoding": "gzip"})):
        assert post(world.gateway, path, body, JSON, Idempotency_Key=key, **coded).status_code == 200
    assert total(world) == before + 1


def test_a_compressed_body_comes_in_chunks(world: World) -> None:
    before = total(world)
    packed = gzip.compress(records({"value": "x" * 1_000, "partition": 0}))
    parts = (packed[at : at + 7] for at in range(0, len(packed), 7))
    path = f"/topics/{world.topic}"
    assert post(world.gateway, path, parts, JSON, Content_Encoding="gzip").status_code == 200
    assert total(world) == before + 1


def test_what_a_body_unpacks_to_needs_room_of_its_own(tmp_path: Path) -> None:
    limits = {"buffer_memory": 256 * 1024, "max_request_bytes": 200_000}
    with running_gateway(tmp_path, **limits) as gateway:
        gateway.create_topic("t")
        body = gzip.compress(records({"value": "x" * 150_000}))
        assert len(body) < 1_000
        refused(post(gateway, "/topics/t", body, JSON, Content_Encoding="gzip"), 413, 413, "buffer_memory")
        assert is_free(gateway)
        assert gateway.produce("t", "small").status_code == 200


def scope(*codings: bytes) -> dict[str, Any]:
    return {"type": "http", "headers": [(b"content-encoding", coding) for coding in codings]}


@pytest.mark.parametrize(
    ("codings", "found"),
    [
        ((), None),
        ((b"",), None),
        ((b" , identity",), None),
        ((b"Zstd ",), "zstd"),
        ((b"identity", b"gzip"), "gzip"),
    ],
)
def test_a_coding_is_found_in_any_of_the_headers(codings: tuple[bytes, ...], found: str | None) -> None:
    assert coding_of(scope(*codings)) == found


@given(st.lists(st.sampled_from([b"gzip", b"zstd"]), min_size=2, max_size=4))
def test_several_codings_are_refused_however_they_are_written(codings: list[bytes]) -> None:
    for written in (scope(*codings), scope(b",".join(codings))):
        with pytest.raises(UnsupportedMediaType):
            coding_of(written)


@given(st.sampled_from(CODINGS), st.binary(max_size=5_000), st.integers(1, 20))
def test_a_body_that_was_unpacked_holds_its_own_room(coding: str, content: bytes, times: int) -> None:
    buffer, packed = Buffer(MIB), PACKERS[coding](content * times)
    with buffer.room("t") as room:
        room.grow(len(packed))
        assert unpacked(packed, coding, room, MIB) == content * times
        assert buffer.used == len(content * times)
    assert buffer.used == 0


@given(st.sampled_from(CODINGS), st.data())
def test_changed_bytes_are_refused_or_unpack_within_bounds(coding: str, data: st.DataObject) -> None:
    packed = bytearray(PACKERS[coding](b"some text, and more of it; " * 50))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    buffer = Buffer(100_000)
    with buffer.room("t") as room:
        try:
            assert len(unpacked(bytes(packed), coding, room, 20_000)) <= 20_000
        except (MalformedBody, RequestTooLarge):
            return


def test_no_room_now_is_said_so() -> None:
    buffer, packed = Buffer(100_000), gzip.compress(bytes(40_000))
    buffer.reserve("others", 40_000)
    with buffer.room("t") as room:
        room.grow(len(packed))
        with pytest.raises(BufferFull):
            unpacked(packed, "gzip", room, 50_000)
    assert buffer.used == 40_000
