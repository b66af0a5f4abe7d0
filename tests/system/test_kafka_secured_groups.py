"""Groups of Kafka's clients that log in: those who may, share the partitions; one who may not hears Kafka's
code for it, and the others go on.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from typing import Any, Protocol

import pytest
from confluent_kafka import Consumer, KafkaException
from kafka import KafkaConsumer
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError

from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.admin.topic_admin import create_topic
from tests.kit.kafka import KafkaGateway, kafka_gateway, librdkafka_producer
from tests.kit.secured import Secured, acl
from tests.kit.support import WAIT_S, wait_until

TOPIC, PARTITIONS = "t", 4
PASSWORD = "open sesame"
SESSION_MS, HEARTBEAT_MS = 2_000, 200

READ_TOPIC = (Operation.READ, ResourceType.TOPIC, TOPIC)
DESCRIBE_TOPIC = (Operation.DESCRIBE, ResourceType.TOPIC, TOPIC)
MAY = {
    "ann": [READ_TOPIC, (Operation.READ, ResourceType.GROUP, "*")],
    "bob": [READ_TOPIC, (Operation.READ, ResourceType.GROUP, "*")],
    "sue": [READ_TOPIC, (Operation.READ, ResourceType.GROUP, "*")],
    "no-group": [READ_TOPIC],
    "no-topic": [DESCRIBE_TOPIC, (Operation.READ, ResourceType.GROUP, "*")],
    "writer": [(Operation.WRITE, ResourceType.TOPIC, TOPIC)],
}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    made = Secured(tmp_path_factory.mktemp("root"))
    for name, needs in MAY.items():
        made.user(name, PASSWORD)
        made.allow(*(acl(f"User:{name}", *need) for need in needs))
    create_topic(made.cluster, TOPIC, PARTITIONS)
    return made


@pytest.fixture(scope="module")
def keys(secured: Secured) -> dict[str, str]:
    """Made before the gateway starts, which so knows them at once."""
    return {name: secured.key("User:sue") for name in KINDS}


@pytest.fixture(scope="module")
def gateway(secured: Secured, keys: dict[str, str]) -> Iterator[KafkaGateway]:
    assert keys
    settings: dict[str, object] = {
        "group_min_session_timeout_ms": 1_000,
        "group_initial_rebalance_delay_ms": 0,
        "group_consumer_session_timeout_ms": SESSION_MS,
        "group_consumer_heartbeat_interval_ms": HEARTBEAT_MS,
    }
    data, methods = secured.cluster.store.url, "api-key,scram"
    with kafka_gateway(data, authentication_methods=methods, **settings) as made:
        yield made


def login(name: str, password: str = PASSWORD) -> dict[str, Any]:
    """As librdkafka wants it: a user by SCRAM, a key by PLAIN."""
    mechanism = "SCRAM-SHA-256" if password == PASSWORD else "PLAIN"
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": password,
    }


class Member(Protocol):
    """A consumer in a group."""

    errors: list[str]
    """What it has heard."""

    def poll(self) -> set[bytes]:
        """The values that it reads now, which it commits."""

    def assigned(self) -> set[int]:
        """The partitions that the member owns."""

    def close(self) -> None: ...


class Librdkafka:
    """A consumer of confluent-kafka."""

    PROTOCOL: Mapping[str, Any] = {
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "partition.assignment.strategy": "range",
    }

    def __init__(self, bootstrap: str, group: str, credential: Mapping[str, Any]) -> None:
        self.errors: list[str] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 100,
                "error_cb": lambda error: self.errors.append(error.name()),
                **self.PROTOCOL,
                **credential,
            }
        )
        self._consumer.subscribe([TOPIC])

    def poll(self) -> set[bytes]:
        found: set[bytes] = set()
        for message in self._consumer.consume(100, 0.05):
            error = message.error()
            if error is None:
                found.add(message.value() or b"")
            else:
                self.errors.append(error.name())
        if found:
            self._commit()
        return found

    def _commit(self) -> None:
        at = self._consumer.position(self._consumer.assignment())
        try:
            self._consumer.commit(offsets=[each for each in at if each.offset >= 0], asynchronous=False)
        except KafkaException as error:
            self.errors.append(error.args[0].name())

    def assigned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()


class LibrdkafkaConsumer(Librdkafka):
    """One that speaks the protocol of KIP-848, for which the gateway sets the times."""

    PROTOCOL: Mapping[str, Any] = {"group.protocol": "consumer"}


class KafkaPython:
    """A consumer of kafka-python."""

    def __init__(self, bootstrap: str, group: str, credential: Mapping[str, Any]) -> None:
        self.errors: list[str] = []
        self._consumer = KafkaConsumer(
            TOPIC,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            partition_assignment_strategy=[RangePartitionAssignor],
            security_protocol=credential["security.protocol"],
            sasl_mechanism=credential["sasl.mechanism"],
            sasl_plain_username=credential["sasl.username"],
            sasl_plain_password=credential["sasl.password"],
        )

    def poll(self) -> set[bytes]:
        try:
            polled = self._consumer.poll(50)
            if polled:
                self._consumer.commit()
        except KafkaError as error:
            self.errors.append(type(error).__name__)
            return set()
        return {each.value for records in polled.values() for each in records}

    def assigned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close(timeout_ms=1_000)


KINDS: dict[str, Callable[[str, str, Mapping[str, Any]], Member]] = {
    "librdkafka": Librdkafka,
    "librdkafka-consumer": LibrdkafkaConsumer,
    "kafka-python": KafkaPython,
}
QUICK_FIRST = ["librdkafka", "librdkafka-consumer", pytest.param("kafka-python", marks=pytest.mark.torture)]
REFUSED = {
    "group": {"GROUP_AUTHORIZATION_FAILED", "GroupAuthorizationFailedError"},
    "topic": {"TOPIC_AUTHORIZATION_FAILED", "TopicAuthorizationFailedError"},
    "login": {"_AUTHENTICATION", "SaslAuthenticationFailedError"},
}
"""How both clients name Kafka's codes."""


class Scene:
    """A group of two members, one of each client."""

    def __init__(self, stack: ExitStack, gateway: KafkaGateway, group: str) -> None:
        self.stack, self.gateway, self.group = stack, gateway, group
        self.both: list[Member] = [
            self.member("librdkafka", login("ann")),
            self.member("kafka-python", login("bob")),
        ]
        self.wait_for_shares(*self.both)

    def member(self, kind: str, credential: Mapping[str, Any]) -> Member:
        return self.stack.enter_context(closing(KINDS[kind](self.gateway.bootstrap, self.group, credential)))

    def wait_for_shares(self, *members: Member) -> None:
        """Wait until these members have all partitions, as many each."""
        share = PARTITIONS // len(members)

        def are_shared() -> bool:
            for each in members:
                each.poll()
            found = [each.assigned() for each in members]
            return {len(each) for each in found} == {share} and set().union(*found) == {*range(PARTITIONS)}

        wait_until(are_shared, f"{len(members)} members share the partitions")

    def wait_for(self, member: Member, refusal: str) -> set[bytes]:
        """Wait until a member is refused, while the others poll; returns what it reads until then."""
        found: set[bytes] = set()

        def is_refused() -> bool:
            for each in self.both:
                each.poll()
            found.update(member.poll())
            return not REFUSED[refusal].isdisjoint(member.errors)

        wait_until(is_refused, f"it is refused as {REFUSED[refusal]}")
        return found

    def check(self, *members: Member) -> None:
        """These members read all that is sent now, and none of them has heard of an error."""
        values = {b"%s %d" % (self.group.encode(), number) for number in range(40)}
        producer = librdkafka_producer(self.gateway.bootstrap, **login("writer"))
        for number, value in enumerate(sorted(values)):
            producer.produce(TOPIC, value, partition=number % PARTITIONS)
        assert producer.flush(WAIT_S) == 0
        found: set[bytes] = set()

        def are_read() -> bool:
            for each in members:
                found.update(each.poll())
            return values <= found

        wait_until(are_read, "all is read")
        assert [each.errors for each in members] == [[] for _ in members]


@pytest.fixture
def scene(gateway: KafkaGateway, secured: Secured, request: pytest.FixtureRequest) -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(stack, gateway, request.node.name)


@pytest.mark.parametrize("kind", QUICK_FIRST)
def test_one_who_may_not_read_the_group_is_kept_out(scene: Scene, kind: str) -> None:
    before = [each.assigned() for each in scene.both]
    assert scene.wait_for(scene.member(kind, login("no-group")), "group") == set()
    scene.check(*scene.both)
    assert [each.assigned() for each in scene.both] == before


@pytest.mark.torture
@pytest.mark.parametrize("kind", KINDS)
def test_one_who_may_not_read_the_topic_reads_nothing_of_its_share(scene: Scene, kind: str) -> None:
    stranger = scene.member(kind, login("no-topic"))
    assert scene.wait_for(stranger, "topic") == set()
    stranger.close()
    scene.wait_for_shares(*scene.both)
    scene.check(*scene.both)


@pytest.mark.parametrize("kind", QUICK_FIRST)
def test_a_member_whose_key_is_revoked_is_shut_out(
    scene: Scene, secured: Secured, keys: dict[str, str], kind: str
) -> None:
    scene.both.pop().close()
    other = scene.member(kind, login(*keys[kind].split(".")))
    scene.wait_for_shares(*scene.both, other)
    secured.revoke(keys[kind])
    scene.wait_for(other, "login")
    scene.wait_for_shares(*scene.both)
    scene.check(*scene.both)


@pytest.mark.torture
@pytest.mark.parametrize("kind", KINDS)
def test_a_member_that_may_no_longer_read_the_group_is_shut_out(
    scene: Scene, secured: Secured, kind: str
) -> None:
    scene.both.pop().close()
    other = scene.member(kind, login("sue"))
    scene.wait_for_shares(*scene.both, other)
    lost = acl("User:sue", Operation.READ, ResourceType.GROUP, "*")
    secured.disallow(lost)
    scene.wait_for(other, "group")
    scene.wait_for_shares(*scene.both)
    scene.check(*scene.both)
    secured.allow(lost)
