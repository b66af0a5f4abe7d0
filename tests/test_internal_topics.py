"""Internal topics: no request of a client gets at what is in them, whatever route it takes."""

import httpx
import pytest

from log_tables.layout import CLUSTER_METADATA, CONSUMER_OFFSETS, MAINTENANCE
from tests.gateway import RunningGateway

INTERNAL = (CLUSTER_METADATA, CONSUMER_OFFSETS, MAINTENANCE, "__x")


def refused(answer: httpx.Response) -> None:
    assert (answer.status_code, answer.json()["error_code"]) == (400, 40002), answer.text
    assert "is internal" in answer.json()["message"]


@pytest.mark.parametrize("name", INTERNAL)
@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "records?offset=0"), ("DELETE", "records?before=0"), ("GET", "offsets"), ("POST", "")],
)
def test_a_partition_of_an_internal_topic_is_closed(
    gateway: RunningGateway, name: str, method: str, path: str
) -> None:
    body = {"records": [{"value": 1}]} if method == "POST" else None
    url = f"/topics/{name}/partitions/0/{path}".rstrip("/")
    headers = {"Content-Type": "application/vnd.kafka.json.v2+json"} if body else {}
    refused(gateway.client.request(method, url, json=body, headers=headers))
