"""PUT of a group's offsets by a mirror: only of its copies, up to their ends, as one."""

from typing import Any

import pytest

from log_tables.cluster.cluster import Cluster
from log_tables.limits import OFFSETS_AT_ONCE
from log_tables.store.store import open_store
from tests.kit.gateway import RunningGateway
from tests.kit.mirrored import END, MIRROR, mirrored_topic, promote


@pytest.fixture
def cluster(gateway: RunningGateway) -> Cluster:
    """The root of the gateway, as a mirror's process opens it."""
    return Cluster.open(open_store(gateway.data))


class Group:
    """A group, and what its offsets are set to."""

    def __init__(self, gateway: RunningGateway, name: str) -> None:
        self._client, self._path = gateway.client, f"/consumers/{name}/offsets"

    def put(self, *offsets: dict[str, Any], **query: str) -> tuple[int, int, str]:
        """The status, the error's code and what it says."""
        answer = self._client.put(self._path, json={"offsets": offsets}, params={"mirror": MIRROR, **query})
        body = answer.json() if answer.content else {}
        return answer.status_code, body.get("error_code", 0), body.get("message", "")

    def offsets(self) -> list[tuple[str, int, int, str]]:
        found = self._client.get(self._path).json()["offsets"]
        return [tuple(each[name] for name in ("topic", "partition", "offset", "metadata")) for each in found]


@pytest.fixture
def group(gateway: RunningGateway, request: pytest.FixtureRequest) -> Group:
    return Group(gateway, request.node.name)


def offset(topic: str, at: int, **more: object) -> dict[str, Any]:
    return {"topic": topic, "partition": 0, "offset": at, **more}


def test_offsets_up_to_the_end_of_a_copy(cluster: Cluster, group: Group) -> None:
    topic = mirrored_topic(cluster, "offsets-of-a-mirror").name
    assert group.put(offset(topic, END + 1))[:2] == (416, 41601)
    assert group.put(offset(topic, END, metadata="a note"))[0] == 204
    assert group.put(offset(topic, 0))[:2] == (409, 409)
    assert group.put(offset(topic, 0, before=END), force="true")[:2] == (400, 40002)
    assert group.offsets() == [(topic, 0, END, "a note")]
    assert group.put(offset(topic, 0, before=END))[0] == 204  # below the log start, too
    assert group.offsets() == [(topic, 0, 0, "")]
    assert group.put(offset(topic, 1), mirror="")[0] == 204
    status, _, said = group.put(offset(topic, 2, before=1))
    assert (status, "has committed an offset of" in said) == (409, True)


def test_only_of_topics_that_the_mirror_copies(
    gateway: RunningGateway, cluster: Cluster, group: Group
) -> None:
    own = gateway.create_topic("no-copy")
    topic = mirrored_topic(cluster, "soon-promoted").name
    assert group.put(offset(own, 0))[2].endswith("it was promoted")
    assert group.put(offset(topic, 0), mirror="other")[0] == 409
    assert group.put(offset(topic, 0), offset(own, 0))[0] == 409
    promote(cluster, topic)
    assert group.put(offset(topic, 0))[0] == 409


def test_so_many_as_are_set_in_one_go(cluster: Cluster, group: Group) -> None:
    count = OFFSETS_AT_ONCE + 1
    topic = mirrored_topic(cluster, "wide-mirror", count, commits=()).name
    every = [{"topic": topic, "partition": number, "offset": 0} for number in range(count)]
    status, _, said = group.put(*every)
    assert (status, "send at most 500" in said) == (400, True)
    assert group.put(*every[:-1])[0] == 204
    assert len(group.offsets()) == OFFSETS_AT_ONCE
