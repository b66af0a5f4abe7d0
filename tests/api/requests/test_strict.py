"""Every route refuses a query parameter that it does not know or is given twice, and numbers that are written
in another way; it takes a slash at the end of its path.
"""

from urllib.parse import quote

import pytest

from tests.kit.gateway import RunningGateway
from tests.kit.routes import World, routes


@pytest.fixture
def world(gateway: RunningGateway, topic: str) -> World:
    return World(gateway, topic)


def test_every_route_refuses_a_parameter_that_it_does_not_know(world: World) -> None:
    before, tried = world.state(), 0
    for route in routes(world.gateway.client):
        for name in ("colour", *(f"{known}s" for known in route.query)):
            path = f"{route.path(**world.names)}?{name}=0"
            answer = world.send(route.method, path, world.body_of(route))
            assert (answer.status_code, answer.json()["error_code"]) == (400, 40002), (route, answer.text)
            message = answer.json()["message"]
            assert f"'{name}'" in message
            assert all(known in message for known in route.query)
            assert ("did you mean" in message) == (name != "colour"), message
            tried += 1
    assert tried > 50
    assert world.state() == before


def test_every_route_refuses_a_parameter_that_is_given_twice(world: World) -> None:
    before, tried = world.state(), 0
    for route in routes(world.gateway.client):
        for name in route.query:
            path = f"{route.path(**world.names)}?{name}=0&{name}=0"
            answer = world.send(route.method, path, world.body_of(route))
            assert (answer.status_code, answer.json()["error_code"]) == (400, 40002), (route, answer.text)
            assert f"'{name}' is given 2 times" in answer.json()["message"]
            tried += 1
    assert tried > 10
    assert world.state() == before


LAX = ["+0", "0.0", "0_0", "00", "-0", " 0", "0 ", "0x0", "1e0", "\u0660", "", "1" * 30]


def test_every_route_refuses_a_number_that_is_not_written_as_one(world: World) -> None:
    before, tried = world.state(), 0
    for route in routes(world.gateway.client):
        for name in route.numbers:
            for lax in map(quote, LAX):
                if name not in route.query and not lax:
                    continue  # another path
                names = world.names if name in route.query else {**world.names, name: lax}
                query = f"?{name}={lax}" if name in route.query else ""
                path = route.path(**names) + query
                answer = world.send(route.method, path, world.body_of(route))
                found = (answer.status_code, answer.json()["error_code"])
                assert found == (400, 40002), (route, path, answer.text)
                tried += 1
    assert tried > 10 * len(LAX)
    assert world.state() == before


@pytest.mark.parametrize("query", ["records?offset", "offsets?timestamp"])
def test_a_number_among_words_is_written_as_one_too(world: World, query: str) -> None:
    for lax in map(quote, LAX):
        path = f"/topics/{world.topic}/partitions/0/{query}={lax}"
        assert world.gateway.client.get(path).status_code == 400, path
    assert world.gateway.client.get(f"/topics/{world.topic}/partitions/0/{query}=0").status_code == 200


def test_the_name_of_an_unknown_parameter_is_shown_only_so_far(world: World) -> None:
    answer = world.gateway.client.get(f"/topics?{'x' * 5_000}=1")
    assert (answer.status_code, len(answer.json()["message"]) < 300) == (400, True)


def test_every_route_takes_a_slash_at_the_end(world: World) -> None:
    for route in routes(world.gateway.client):
        if route.method == "GET":
            path = route.path(**world.names)
            plain, slashed = (world.gateway.client.get(each) for each in (path, f"{path}/"))
            assert (slashed.status_code, slashed.headers["content-type"]) == (
                plain.status_code,
                plain.headers["content-type"],
            ), route
    for route in routes(world.gateway.client):
        if route.method != "GET":
            answer = world.send(route.method, f"{route.path(**world.names)}/", world.body_of(route))
            assert answer.status_code != 405, route
            assert "Not Found" not in answer.text, route


def test_a_slash_that_belongs_to_a_name_is_none_at_the_end(world: World) -> None:
    assert world.gateway.client.get(f"/topics/{world.topic}%2F").status_code == 404
    assert world.gateway.client.get(f"/topics/{world.topic}//").status_code == 404
