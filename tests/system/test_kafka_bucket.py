"""A bucket that is away for a while under Kafka's clients: what was acknowledged is there once and in order,
the members of groups go on, and what is refused meanwhile is refused with errors after which clients repeat.
"""

import json
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from api.kafka.clients.errors import ErrorCode
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from tests.kit.kafka import kafka_gateway, read_all
from tests.kit.kafka_batches import BatchSender
from tests.kit.kafka_load import LibrdkafkaLoad, check_log, survive
from tests.kit.kafka_member import KafkaMember
from tests.kit.support import free_port, s3_server, wait_until

TOPIC, OTHER, PARTITIONS = "ledger", "other", 3
TIMES = 5

AWAY = {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER}
"""What a producer may hear: each of them has it repeat its batch."""


@pytest.mark.torture
@pytest.mark.usefixtures("s3")
def test_clients_outlast_a_bucket_that_is_away(tmp_path: Path) -> None:
    directory, port = tmp_path / "s3", free_port()
    directory.mkdir()
    with ExitStack() as stack:
        bucket = stack.enter_context(s3_server(directory, port))
        url, options = bucket.bucket("log"), bucket.options
        settings = {"store_options": json.dumps(options), "group_min_session_timeout_ms": 1_000}
        gateway = stack.enter_context(kafka_gateway(url, **settings))
        gateway.create_topic(TOPIC, PARTITIONS)
        gateway.create_topic(OTHER)
        made = KafkaMember("librdkafka", gateway.bootstrap, TOPIC, "readers", tmp_path)
        member = stack.enter_context(closing(made))

        def strike(_: int) -> None:
            nonlocal bucket
            bucket.process.kill()
            bucket.process.wait()
            with closing(BatchSender(gateway.port)) as asking:
                asking.send((OTHER, 0), [b"refused"])
                assert asking.answer().error_code in AWAY
            bucket = stack.enter_context(s3_server(directory, port))

        sent = survive(LibrdkafkaLoad(gateway.bootstrap, TOPIC), TIMES, strike, lambda: 100)
        found = read_all(gateway.bootstrap, TOPIC, PARTITIONS)
        check_log(sent, found)
        ends = {each.partition: each.offset + 1 for each in found}
        wait_until(lambda: member.committed() == ends, "the member commits all")
        assert member.read() == {(each.partition, each.offset) for each in found}
        gateway.close()
        assert check(open_store(url, options)).problems == []
