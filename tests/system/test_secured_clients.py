"""Each of our own clients under each set of rights that an administrator gives, and under each that lacks one
of them: it does its work, or says who may not do what with which resource.
"""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from api.process.app import create_app
from api.process.server import open_gateway
from ingest.settings import Settings
from lakelog import AsyncClient, AsyncProducer, Client, Consumer, Credential, Producer
from lakelog.cli import app as command
from lakelog.cli.acl_options import Operations
from lakelog.cli.common import DENIED
from lakelog.client.security_config import SecurityConfig
from lakelog.spark.options import GatewayLocation
from lakelog.spark.sink.sink import Transaction, publish
from lakelog.spark.source.progress import Progress
from log_tables.clock import SystemClock
from log_tables.cluster.acl import ANY, CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from log_tables.errors import AuthorizationFailed, LakelogError, UnknownGroup
from log_tables.record import Record, input_batch
from log_tables.segments.staging import PartitionRecords, StagedFile, stage
from log_tables.topic_partition import TopicPartition
from tests.kit.acls import DESCRIBES, DESCRIBES_CONFIGS
from tests.kit.every_route import pages
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.secured import Secured, bearer
from tests.kit.support import WAIT_S, wait_until

Right = tuple[ResourceType, Operation]
Rights = frozenset[Right]

NAME = "orders"
"""The topic, the group, and the beginning of the name of all that clients make."""

T, G, C, X = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID


def rights(*names: str) -> Rights:
    """`T:READ` is READ on the topic."""
    kinds = {"T": T, "G": G, "C": C, "X": X}
    pairs = (name.split(":") for name in names)
    return frozenset((kinds[kind], Operation[operation]) for kind, operation in pairs)


def shorthand(**named: bool) -> Rights:
    """The rights that `lakelog acl create` grants with these options."""
    options = Operations([], **{"producer": False, "consumer": False, **named})
    return frozenset((kind, operation) for kind in options.kinds() for operation in options.of(kind))


PRODUCER, CONSUMER = shorthand(producer=True), shorthand(consumer=True)


def and_one_less(given: Rights) -> list[Rights]:
    return [given, *(given - {right} for right in sorted(given))]


WHOLE = [frozenset[Right](), PRODUCER, CONSUMER, PRODUCER | CONSUMER]
SHORTHANDS = [*WHOLE, *and_one_less(PRODUCER)[1:], *and_one_less(CONSUMER)[1:]]


def implied(given: Rights) -> Rights:
    """All rights that `given` imply, by the rules of Kafka's authorizer."""
    describes = {(kind, Operation.DESCRIBE) for kind, operation in given if operation in DESCRIBES}
    settings = {(kind, Operation.DESCRIBE_CONFIGS) for kind, each in given if each in DESCRIBES_CONFIGS}
    return given | describes | settings


class World(NamedTuple):
    """A secured gateway, and keys of principals by what they may do."""

    root: Secured
    gateway: RunningGateway
    admin: Client
    keys: dict[Rights, tuple[str, str]]

    def staged(self) -> StagedFile:
        """A record in a file, as a task of Spark leaves it."""
        cluster = self.root.cluster
        cluster.refresh()
        batch = input_batch([Record(b"v")], cluster.clock.now_us())
        part = PartitionRecords(NAME, cluster.topic(NAME).topic_id, 0, [batch])
        return stage(cluster.store, cluster.clock, NAME, [part])


class Asked(NamedTuple):
    """A principal, its key, and the world in which it asks."""

    world: World
    principal: str
    key: str

    @property
    def options(self) -> dict[str, object]:
        return {"url": self.world.gateway.url, "credential": Credential.api_key(self.key)}

    @property
    def location(self) -> GatewayLocation:
        return GatewayLocation(self.world.gateway.url, SecurityConfig(Credential.api_key(self.key)))


Do = Callable[[Asked], object]


def lakelog(*words: str, stdin: bytes = b"") -> Do:
    """Run a command. Raises AuthorizationFailed when it ends as one that was refused."""

    def run(asked: Asked) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LAKELOG_API_KEY", asked.key)
            patch.setenv("LAKELOG_WAIT", "0")
            patch.setattr(sys, "argv", ["lakelog", *words])
            url = ("--url", asked.world.gateway.url)
            done = CliRunner().invoke(command, [*words, *url], input=stdin, catch_exceptions=False)
        if done.exit_code == DENIED:
            (line,) = done.stderr.splitlines()
            raise AuthorizationFailed(line)
        assert done.exit_code == 0, (words, done.output)

    return run


def before(prepare: Callable[[World], object], do: Do) -> Do:
    """`do`, after an administrator has made sure of what it needs."""

    def run(asked: Asked) -> object:
        prepare(asked.world)
        return do(asked)

    return run


def make_topic(world: World) -> None:
    with suppress(LakelogError):
        world.admin.create_topic(f"{NAME}-made")


def drop_topic(world: World) -> None:
    with suppress(LakelogError):
        world.admin.delete_topic(f"{NAME}-made")


def make_group(world: World) -> None:
    world.admin.set_offsets(NAME, {(NAME, 0): 0}, force=True)


def grow(asked: Asked) -> None:
    count = asked.world.admin.partition_count(f"{NAME}-made")
    lakelog("topic", "alter", f"{NAME}-made", "--partitions", str(count + 1))(asked)


COMMANDS: dict[str, tuple[Rights, Do]] = {
    "topic list": (rights(), lakelog("topic", "list")),
    "topic describe": (rights("T:DESCRIBE"), lakelog("topic", "describe", NAME)),
    "topic create": (rights("T:CREATE"), before(drop_topic, lakelog("topic", "create", f"{NAME}-made"))),
    "topic delete": (
        rights("T:DELETE"),
        before(make_topic, lakelog("topic", "delete", "--yes", f"{NAME}-made")),
    ),
    "topic alter": (
        rights("T:ALTER_CONFIGS", "T:DESCRIBE"),
        lakelog("topic", "alter", NAME, "--config", "retention.ms=-1"),
    ),
    "topic grow": (rights("T:ALTER"), before(make_topic, grow)),
    "topic infer": (rights("T:READ", "T:DESCRIBE_CONFIGS"), lakelog("topic", "infer", NAME)),
    "produce": (rights("T:WRITE"), lakelog("produce", NAME, stdin=b"a line\n")),
    "consume": (rights("T:READ"), lakelog("consume", NAME)),
    "consume in a group": (
        rights("T:READ", "G:READ"),
        lakelog("consume", NAME, "--group", NAME, "--from", "earliest", "--max", "1"),
    ),
    "group list": (rights(), lakelog("group", "list")),
    "group describe": (rights("G:DESCRIBE"), lakelog("group", "describe", NAME)),
    "group lag": (rights("G:DESCRIBE"), lakelog("group", "lag", NAME)),
    "group reset": (
        rights("G:READ", "T:READ"),
        lakelog("group", "reset-offsets", NAME, "--topic", NAME, "--to", "earliest"),
    ),
    "group delete": (rights("G:DELETE"), lakelog("group", "delete", NAME)),
    "broker list": (rights("C:DESCRIBE"), lakelog("broker", "list")),
    "acl list": (rights("C:DESCRIBE"), lakelog("acl", "list")),
    "acl create": (
        rights("C:ALTER"),
        lakelog("acl", "create", "--allow-principal", "User:x", "--producer", "--topic", "x"),
    ),
}


def send(asked: Asked) -> None:
    with Producer(**asked.options) as producer:  # type: ignore[arg-type]
        producer.send(NAME, b"v").result(WAIT_S)


def send_asynchronously(asked: Asked) -> None:
    async def run() -> None:
        async with AsyncProducer(**asked.options) as producer:  # type: ignore[arg-type]
            await (await producer.send(NAME, b"v"))

    asyncio.run(run())


def read(asked: Asked) -> None:
    with Client(**asked.options) as client:  # type: ignore[arg-type]
        assert [*client.read(NAME, 0)]


def settings(asked: Asked) -> None:
    async def run() -> None:
        async with AsyncClient(**asked.options) as client:  # type: ignore[arg-type]
            assert (await client.topic_configs(NAME))["max.message.bytes"]

    asyncio.run(run())


def consume(asked: Asked) -> None:
    with Consumer(group_id=NAME, topics=[NAME], auto_offset_reset="earliest", **asked.options) as consumer:  # type: ignore[arg-type]
        consumer.poll(0)
        consumer.commit()


def transact(asked: Asked) -> None:
    with Consumer(group_id=NAME, topics=[NAME], auto_commit=False, **asked.options) as consumer:  # type: ignore[arg-type]
        consumer.poll(0)
        with consumer.transaction() as transaction:
            transaction.send(NAME, b"v")


def publish_staged(asked: Asked) -> None:
    clock = SystemClock()
    publish(asked.location, Transaction(NAME, clock.unique_id()), [asked.world.staged()], clock)


PROGRAMS: dict[str, tuple[Rights, Do]] = {
    "Producer": (rights("T:WRITE"), send),
    "AsyncProducer": (rights("T:WRITE"), send_asynchronously),
    "Client.read": (rights("T:READ"), read),
    "AsyncClient.topic_configs": (rights("T:DESCRIBE_CONFIGS"), settings),
    "Consumer": (rights("T:READ", "G:READ"), consume),
    "Transaction": (rights("T:READ", "T:WRITE", "G:READ", "X:WRITE"), transact),
    "Spark's sink": (rights("T:WRITE", "G:READ", "X:WRITE"), publish_staged),
}
CLIENTS = COMMANDS | PROGRAMS
EVERY = {*SHORTHANDS, *(one for needs, _ in CLIENTS.values() for one in and_one_less(needs))}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    data = tmp_path_factory.mktemp("secured")
    root = Secured(data)
    keys = {}
    for number, given in enumerate(sorted(EVERY, key=sorted)):
        principal = f"User:u{number}"
        keys[given] = principal, root.key(principal)
    root.allow(*(_acl(principal, *right) for given, (principal, _) in keys.items() for right in given))
    admin = root.key()
    with (
        running_gateway(data, linger_ms=0, authentication_methods="api-key") as gateway,
        Client(gateway.url, credential=Credential.api_key(admin)) as client,
    ):
        wait_until(lambda: client.topics() == [], "the gateway knows the keys")
        client.create_topic(NAME)
        with Producer(gateway.url, credential=Credential.api_key(admin)) as producer:
            producer.send(NAME, b"v", partition=0).result(WAIT_S)
        yield World(root, gateway, client, keys)


def _acl(principal: str, kind: ResourceType, operation: Operation) -> Acl:
    name, pattern = (CLUSTER_NAME, PatternType.LITERAL) if kind is C else (NAME, PatternType.PREFIXED)
    return Acl(kind, name, pattern, principal, ANY, operation, Permission.ALLOW)


def asked_by(world: World, given: Rights) -> Asked:
    return Asked(world, *world.keys[given])


def check(world: World, name: str, needs: Rights, do: Do) -> None:
    less = {implied(given) & implied(needs): given for given in [*SHORTHANDS, *and_one_less(needs)]}
    for given in {*WHOLE, *less.values()}:
        make_group(world)
        asked = asked_by(world, given)
        missing = implied(needs) - implied(given)
        said = [f"{asked.principal} may not {operation} {kind} '" for kind, operation in missing]
        refused = ""
        try:
            do(asked)
        except AuthorizationFailed as error:
            refused = str(error)
        assert bool(refused) == bool(missing), (name, sorted(given), refused)
        assert not missing or any(text in refused for text in said), (name, sorted(given), refused)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_does_its_work_or_says_what_is_missing(world: World, name: str) -> None:
    check(world, name, *COMMANDS[name])


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_does_its_work_or_hears_what_is_missing(world: World, name: str) -> None:
    check(world, name, *PROGRAMS[name])


def test_records_of_a_transaction_that_is_denied_come_again(world: World) -> None:
    send(asked_by(world, PRODUCER))
    make_group(world)
    asked = asked_by(world, CONSUMER)
    with Consumer(group_id=NAME, topics=[NAME], auto_commit=False, **asked.options) as consumer:  # type: ignore[arg-type]
        for _ in range(2):
            assert consumer.poll(30_000)["offset"][0].as_py() == 0
            with pytest.raises(AuthorizationFailed, match="may not WRITE"), consumer.transaction() as made:
                made.send(NAME, b"v")


def test_a_query_says_why_its_progress_is_not_committed(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    needs = rights("G:READ", "T:READ")
    for given in SHORTHANDS:
        with suppress(UnknownGroup):
            world.admin.delete_group(NAME, force=True)
        caplog.clear()
        asked = asked_by(world, given)
        progress = Progress(NAME, asked.location, SystemClock())
        progress.report({TopicPartition(NAME, 0): 1}, last=True)
        progress.close()
        missing = implied(needs) - implied(given)
        said = [f"{asked.principal} may not {operation} {kind} '" for kind, operation in missing]
        assert any(text in caplog.text for text in said) == bool(missing), (sorted(given), caplog.text)


def test_a_producer_that_may_not_see_the_settings_is_told_by_the_gateway_what_is_too_large(
    world: World,
) -> None:
    world.admin.alter_topic(NAME, {"max.message.bytes": "1000"})
    with Producer(**asked_by(world, PRODUCER).options) as producer:  # type: ignore[arg-type]
        sent = producer.send(NAME, b"v" * 2_000)
        assert "raise max.message.bytes" in str(sent.exception(WAIT_S))
    world.admin.alter_topic(NAME, {"max.message.bytes": None})


def test_topic_describe_says_that_settings_need_a_right(world: World) -> None:
    for given, shown in ((PRODUCER, False), (rights("T:DESCRIBE_CONFIGS", "T:READ"), True)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LAKELOG_API_KEY", asked_by(world, given).key)
            words = ("topic", "describe", NAME, "--all", "--url", world.gateway.url)
            said = CliRunner().invoke(command, words).stdout
        assert ("may DESCRIBE_CONFIGS" in said, "compression.type" in said) == (not shown, shown)


def test_no_page_of_the_console_fails(world: World, tmp_path: Path) -> None:
    named = {"topic": NAME, "partition": 0, "group": NAME, "run": "r", "version": "0", "name": "page.js"}
    named["mirror"] = "none"
    shown = pages(create_app(open_gateway(Settings(data=str(tmp_path)), "http://test")))
    make_group(world)
    for given in WHOLE:
        asked = asked_by(world, given)
        for method, path in shown:
            if method != "GET" or path.endswith(("/oidc", "/callback")):
                continue
            answer = world.gateway.client.get(path.format(**named), headers=bearer(asked.key))
            assert answer.status_code in (200, 303, 400, 403, 404), (path, sorted(given), answer.text)
            if answer.status_code == 403:
                assert f"{asked.principal} may not " in answer.text, path
