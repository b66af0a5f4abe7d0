"""Requests about access whose values make no sense are answered, and leave no rule that cannot be read."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given

from api.kafka.clients.errors import ErrorCode
from api.kafka.connections.answer_line import errors_in
from api.kafka.protocol import apis
from api.kafka.protocol.apis import APIS, Api
from api.kafka.protocol.notation import Message
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.credential_log import create_credentials
from log_tables.store.store import open_store
from tests.kit.kafka_asking import Asker, asker
from tests.kit.kafka_messages import filled, in_version, messages
from tests.kit.kafka_served import KafkaServed, kafka_served
from tests.kit.models import short_form
from tests.kit.secured import Secured

ABOUT_ACCESS = [
    APIS[key]
    for key in (
        apis.DESCRIBE_ACLS,
        apis.CREATE_ACLS,
        apis.DELETE_ACLS,
        apis.DESCRIBE_CLIENT_QUOTAS,
        apis.ALTER_CLIENT_QUOTAS,
        apis.DESCRIBE_USER_SCRAM_CREDENTIALS,
        apis.ALTER_USER_SCRAM_CREDENTIALS,
    )
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def key(root: Path) -> str:
    return Secured(root).key()


@pytest.fixture(scope="module")
def served(root: Path, key: str) -> Iterator[KafkaServed]:
    assert key
    with kafka_served(root, authentication_methods=("api-key",)) as running:
        yield running


@pytest.fixture
def admin(served: KafkaServed, key: str) -> Iterator[Asker]:
    with asker(served.port) as client:
        client.key(key)
        yield client


def check(admin: Asker, asked: Message, version: int) -> None:
    answer = admin.ask(in_version(asked, version), version)
    assert ErrorCode.UNKNOWN_SERVER_ERROR.name not in {*errors_in(answer)}


@pytest.mark.parametrize("api", ABOUT_ACCESS, ids=lambda api: api.name)
def test_values_that_make_no_sense_are_answered(admin: Asker, root: Path, api: Api) -> None:
    versions = range(api.min_version, api.max_version + 1)

    @short_form(25, 1)
    @given(messages(api.request))
    def answered(drawn: Message) -> None:
        for version in versions:
            check(admin, drawn, version)

    check(admin, filled(api.request), api.max_version)
    answered()
    kept = Cluster.open(open_store(str(root)))  # raises where a rule cannot be read
    assert kept.metadata_log.access.super_users == {"User:admin"}
    create_credentials(kept.store, kept.clock, "")
