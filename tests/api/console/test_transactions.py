"""The page of open transactions."""

from pathlib import Path

from log_tables.cluster.acl import Operation, ResourceType
from tests.kit.kafka import kafka_gateway
from tests.kit.kafka_asking import asker
from tests.kit.kafka_transactions import add, begin, end, produce
from tests.kit.secured import Secured, acl, bearer


def test_open_transactions_are_listed_to_those_who_may_describe_them(tmp_path: Path) -> None:
    made = Secured(tmp_path)
    admin, looker = made.key(), made.key("User:looker")
    made.allow(acl("User:looker", Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "orders-1"))
    with kafka_gateway(tmp_path, authentication_methods="api-key") as gateway:
        client = gateway.running.client

        def page(key: str, search: str = "") -> str:
            return client.get("/console/transactions", params={"search": search}, headers=bearer(key)).text

        assert "No transaction is open" in page(admin)
        client.post("/topics", json={"topic_name": "orders"}, headers=bearer(admin)).raise_for_status()
        with asker(gateway.port) as asking:
            asking.key(admin)
            held, other = begin(asking, "orders-1"), begin(asking, "billing-1")
            produce(asking, held, "orders", b"x" * 5_000)
            add(asking, other, {"orders": [0]})
            shown = page(admin)
            for text in ("orders-1", "billing-1", "User:admin", "Ongoing", "orders-0", "KiB"):
                assert text in shown
            assert "billing-1" not in page(admin, "ORDERS")
            shown = page(looker)
            assert "orders-1" in shown
            assert "billing-1" not in shown
            assert "orders-0" not in shown, "a topic that it may not describe"
            figures = client.get("/metrics", headers=bearer(admin)).text
            assert "lakelog_open_transactions 2.0" in figures
            end(asking, held, 4)
            end(asking, other, 4, commits=False)
        assert "No transaction is open" in page(admin)
        figures = client.get("/metrics", headers=bearer(admin)).text
        for line in (
            "lakelog_open_transactions 0.0",
            "lakelog_open_transactions_bytes 0.0",
            "lakelog_open_transaction_age_seconds 0.0",
            "lakelog_transactions_committed_total 1.0",
            "lakelog_transactions_aborted_total 1.0",
            "lakelog_transactions_timed_out_total 0.0",
        ):
            assert line in figures
