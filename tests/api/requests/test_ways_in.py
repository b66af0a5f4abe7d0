"""No way in reads a body past its size, its deadline and its room."""

import ast
import re
from collections.abc import Iterator

from pydantic import BaseModel

import api.requests.new_topic
import api.v2.consumer_schema
import api.v3.acls
import api.v3.topics
from api.requests.strict import StrictBody
from tests.kit.gateway import RunningGateway
from tests.kit.support import ROOT

READS = {"stream", "body", "json", "form"}


def reads(source: str) -> Iterator[str]:
    """Each call in `source` that reads the body of a request directly, by the name of its method."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            named = node.func.value
            if node.func.attr in READS and isinstance(named, ast.Name) and "request" in named.id:
                yield node.func.attr


def test_bodies_are_read_in_one_place() -> None:
    assert [*reads("async def f(request): await request.body()")] == ["body"]
    sources = sorted((ROOT / "api").rglob("*.py"))
    assert ROOT / "api" / "v2" / "produce.py" in sources
    found = {path.relative_to(ROOT).as_posix(): [*reads(path.read_text())] for path in sources}
    # api/requests/body.py reads before a route; the kind of a body is looked at in what was read then.
    assert {name: calls for name, calls in found.items() if calls} == {"api/requests/strict.py": ["body"]}


def kinds(kind: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for each in kind.__subclasses__():
        yield each
        yield from kinds(each)


def test_what_is_wrong_in_a_list_of_a_body_is_said_once() -> None:
    assert {
        api.requests.new_topic.NewTopic,
        api.v3.acls.NewAcls,
        api.v3.topics.Alterations,
        api.v3.topics.PartitionsCount,
        api.v2.consumer_schema.CommitBody,
    } < {*kinds(StrictBody)}
    for kind in kinds(StrictBody):
        for name, field in kind.model_fields.items():
            if "list[" in str(field.annotation):
                told = repr(field.annotation) + repr(field.metadata)
                assert "AtFirst" in told, f"{kind.__name__}.{name} is to be Listed"


def test_every_body_is_of_a_kind_that_says_little_of_many_mistakes(gateway: RunningGateway) -> None:
    schema = gateway.client.get("/openapi.json").json()
    sent = {
        found
        for methods in schema["paths"].values()
        for route in methods.values()
        for found in re.findall(r"'#/components/schemas/(\w+)'", str(route.get("requestBody")))
    }
    assert {"CommitBody", "NewTopic"} < sent <= {kind.__name__ for kind in kinds(StrictBody)}
