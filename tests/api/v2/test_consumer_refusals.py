"""Requests of consumers that are refused, and change nothing."""

import json
from typing import Any

import pytest

from tests.kit.consumers import Instance
from tests.kit.gateway import RunningGateway

BAD: list[tuple[str, str, str, Any, int]] = [
    ("unknown instance", "GET", "/consumers/{g}/instances/nobody/records", None, 40403),
    ("unknown group", "GET", "/consumers/nobody/instances/nobody/assignments", None, 40403),
    ("name taken", "POST", "/consumers/{g}", {"name": "reader"}, 40902),
    ("unknown format", "POST", "/consumers/{g}", {"format": "xml"}, 42204),
    ("unknown reset", "POST", "/consumers/{g}", {"auto.offset.reset": "none"}, 42204),
    ("unknown field", "POST", "/consumers/{g}", {"colour": "red"}, 42204),
    ("another strategy", "POST", "/consumers/{g}", {"partition.assignment.strategy": "range"}, 42204),
    ("unknown strategy", "POST", "/consumers/{g}x", {"partition.assignment.strategy": "fair"}, 42204),
    ("differing", "POST", "/consumers/{g}", {"auto.commit.enable": True, "enable.auto.commit": False}, 42204),
    ("a slash", "POST", "/consumers/{g}", {"name": "a/b"}, 42204),
    ("a long group", "POST", "/consumers/" + "g" * 250, {}, 42204),
    ("not JSON", "POST", "/consumers/{g}", "{", 42204),
    ("no topics", "POST", "subscription", {"topics": []}, 42206),
    ("nothing", "POST", "subscription", {}, 42206),
    ("both", "POST", "subscription", {"topics": ["t"], "topic_pattern": "t"}, 40903),
    ("to a pattern", "POST", "subscription", {"topic_pattern": "t.*"}, 40903),
    ("a bad topic", "POST", "subscription", {"topics": ["a b"]}, 40002),
    ("mixed", "POST", "assignments", {"partitions": [{"topic": "{t}", "partition": 0}]}, 40903),
    ("negative", "POST", "offsets", {"offsets": [{"topic": "{t}", "partition": 0, "offset": -2}]}, 42206),
    ("not assigned", "POST", "offsets", {"offsets": [{"topic": "{u}", "partition": 0, "offset": 0}]}, 40913),
    ("no such topic", "POST", "offsets", {"offsets": [{"topic": "no", "partition": 0, "offset": 0}]}, 40401),
    ("no such partition", "GET", "offsets", {"partitions": [{"topic": "{t}", "partition": 7}]}, 40402),
    ("unassigned seek", "POST", "positions/end", {"partitions": [{"topic": "{u}", "partition": 0}]}, 40913),
    ("unassigned", "POST", "positions", {"offsets": [{"topic": "{u}", "partition": 0, "offset": 0}]}, 40913),
    (
        "a bad time",
        "POST",
        "positions",
        {"timestamps": [{"topic": "{t}", "partition": 0, "timestamp": "x"}]},
        40002,
    ),
    ("a bad timeout", "GET", "records?timeout=-2", None, 40002),
    ("a list", "POST", "subscription", [1], 42206),
]


@pytest.mark.parametrize(("case", "method", "path", "body", "code"), BAD, ids=[bad[0] for bad in BAD])
def test_what_cannot_be_is_refused_and_changes_nothing(
    gateway: RunningGateway, case: str, method: str, path: str, body: Any, code: int, group: str, topic: str
) -> None:
    other = gateway.create_topic(f"{topic}-other")
    gateway.produce(topic, 1, 2, partition=0)
    gateway.produce(other, 1)
    reader = Instance(gateway.client, group, "reader")
    reader.subscribe(topic)
    assert len(reader.values(2)) == 2
    reader.commit({(topic, 0): 0})
    before = _state(gateway, reader, topic)
    names = {"g": group, "t": topic, "u": other}
    answer = gateway.client.request(
        method,
        path.format(**names) if path.startswith("/") else f"{reader.path}/{path}",
        content=None if body is None else body if isinstance(body, str) else _filled(body, names),
        headers={"Content-Type": "application/vnd.kafka.v2+json"},
    )
    assert answer.json()["error_code"] == code, answer.text
    assert str(answer.status_code) == str(code)[:3]
    assert _state(gateway, reader, topic) == before


def _filled(body: Any, names: dict[str, str]) -> str:
    text = json.dumps(body)
    for name, value in names.items():
        text = text.replace("{" + name + "}", value)
    return text


def _state(gateway: RunningGateway, reader: Instance, topic: str) -> Any:
    groups = gateway.client.get(f"{gateway.cluster}/consumer-groups/{reader.group}/consumers").json()
    subscription = reader.send("GET", "subscription").json()
    return groups, subscription, reader.assignment(), reader.committed(topic, 0, 1)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "missing"),
        ("(?=a)b", "perl"),
        ("a" * 2_000, "1000"),
        ("[[:bad:]]", "class"),
        ("\ud800", "surrogates"),
    ],
)
def test_a_malformed_pattern_is_refused(gateway: RunningGateway, group: str, pattern: str, why: str) -> None:
    reader = Instance(gateway.client, group, "reader")
    answer = reader.send("POST", "subscription", {"topic_pattern": pattern})
    assert answer.json()["error_code"] == 42206
    assert why in answer.json()["message"]
