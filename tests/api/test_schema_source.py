"""Who lets a topic name another one as the place of its schemas needs READ on that: at every door."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

from log_tables.cluster.acl import Operation, ResourceType
from tests.kit.kafka import KafkaGateway, kafka_gateway
from tests.kit.secured import Secured, acl, bearer
from tests.kit.support import WAIT_S

ANN, SECRET, OWN = "User:ann", "secret", "own"
SCHEMAS = "value.columns.schemas"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaGateway, httpx.Client]]:
    """A gateway, and ann, who may do everything with the topics `own…`, and nothing with `secret`."""
    data: Path = tmp_path_factory.mktemp("secured")
    root = Secured(data)
    root.allow(acl(ANN, Operation.ALL, ResourceType.TOPIC, f"{OWN}*"))
    root.user("ann", "a long password")
    keys = [root.key(), root.key(ANN)]
    with kafka_gateway(data, authentication_methods="api-key,scram", linger_ms=0) as gateway:
        admin, ann = (
            httpx.Client(base_url=gateway.running.url, headers=bearer(key), timeout=WAIT_S) for key in keys
        )
        with admin, ann:
            for name in (SECRET, OWN):
                admin.post("/topics", json={"topic_name": name}).raise_for_status()
            yield gateway, ann


def test_http_makes_and_alters_topics_with_sources_that_the_caller_may_read(
    secured: tuple[KafkaGateway, httpx.Client],
) -> None:
    _, client = secured
    cluster = client.get("/v3/clusters").json()["data"][0]["cluster_id"]
    for source, status in ((SECRET, 403), (OWN, 201)):
        configs = [{"name": SCHEMAS, "value": f"topic:{source}"}]
        made = client.post("/topics", json={"topic_name": f"own-{source}", "configs": configs})
        assert made.status_code == status, made.text
    for source, status in ((SECRET, 403), (OWN, 204)):
        changes = {"data": [{"name": SCHEMAS, "value": f"topic:{source}"}]}
        altered = client.post(f"/v3/clusters/{cluster}/topics/{OWN}/configs:alter", json=changes)
        assert altered.status_code == status, altered.text


def test_kafkas_protocol_makes_and_alters_topics_with_sources_that_the_caller_may_read(
    secured: tuple[KafkaGateway, httpx.Client],
) -> None:
    gateway, _ = secured
    admin = AdminClient(
        {
            "bootstrap.servers": gateway.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": "ann",
            "sasl.password": "a long password",
        }
    )
    denied = NewTopic("own-kafka", 1, config={SCHEMAS: f"topic:{SECRET}"})
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        admin.create_topics([denied])["own-kafka"].result(WAIT_S)
    entry = ConfigEntry(SCHEMAS, f"topic:{SECRET}", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, OWN, incremental_configs=[entry])
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        admin.incremental_alter_configs([resource])[resource].result(WAIT_S)
