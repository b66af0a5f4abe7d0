"""The checks that every request passes before its route is found."""

import gzip
import json

import pytest

from tests.kit.gateway import RunningGateway
from tests.kit.routes import BRINGS_RECORDS, JSON, WITH_BODY, World, routes
from tests.kit.sockets import head, tell


def test_no_route_takes_an_encoded_body_for_what_it_is_not(gateway: RunningGateway, topic: str) -> None:
    world = World(gateway, topic)
    before, tried = world.state(), 0
    for route in routes(gateway.client):
        if route.method not in WITH_BODY:
            continue
        packed = gzip.compress(json.dumps(world.body_of(route)).encode())
        taken = route.method == "POST" and route.template in BRINGS_RECORDS
        for encoding in ("BR",) if taken else ("gzip", "identity, zstd", "BR"):
            answer = gateway.client.request(
                route.method,
                route.path(**world.names),
                headers={"Content-Type": JSON, "Content-Encoding": encoding},
                content=packed,
            )
            assert (answer.status_code, answer.json()["error_code"]) == (415, 415), route
            assert "Content-Encoding" in answer.json()["message"]
            tried += 1
    assert tried > 25
    assert world.state() == before


def test_no_route_takes_a_path_that_ends_with_a_line_feed(gateway: RunningGateway, topic: str) -> None:
    world = World(gateway, topic)
    before = world.state()
    for route in routes(gateway.client):
        answer = world.send(route.method, f"{route.path(**world.names)}%0A", world.body_of(route))
        assert (answer.status_code, answer.json()["error_code"]) == (404, 404), route
    assert world.state() == before


def test_a_body_that_says_it_is_as_it_is_is_taken(gateway: RunningGateway, topic: str) -> None:
    headers = {"Content-Type": JSON, "Content-Encoding": "Identity"}
    body = json.dumps({"records": [{"value": 1}]})
    assert gateway.client.post(f"/topics/{topic}", content=body, headers=headers).status_code == 200


@pytest.mark.parametrize("coding", ["gzip, chunked", "gzip,  CHUNKED", "x, chunked"])
def test_a_body_that_is_coded_on_its_way_is_not_taken(
    gateway: RunningGateway, topic: str, coding: str
) -> None:
    body = b'{"records":[{"value":1}]}'
    headers = {"Content_Type": JSON, "Transfer_Encoding": coding, "Connection": "close"}
    sent = head(f"POST /topics/{topic}", **headers)
    heard = tell(gateway, sent, b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
    assert heard.statuses == [400]
    assert heard.error_code == 400
    assert b"Transfer-Encoding 'gzip'" in heard.data or b"Transfer-Encoding 'x'" in heard.data
