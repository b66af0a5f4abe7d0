"""Requests of Kafka's clients that change topics or their settings, right and wrong, and who sends each."""

from collections.abc import Iterator

from api.kafka.protocol.messages import configs
from api.kafka.protocol.messages.cluster import MetadataRequest, MetadataRequestTopic
from api.kafka.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from api.kafka.protocol.notation import Message

Asked = tuple[str, Message]

TOO_MANY = 30
"""Partitions, more than the gateway may have."""

MADE_UNASKED = "auto"
"""A topic that is made because its metadata is asked for."""


def requests(cat: str) -> Iterator[Asked]:
    """All requests, in order. `cat` is a client whose quota the first change uses up."""
    t, u = "kafka-t", "kafka-u"
    wanted = [
        _topic(t, 2, compression__type="lz4"),
        *(_topic(name) for name in ("a b", "__mine", "__consumer_offsets", "x" * 250)),
        _topic(u, no__such="1"),
        _topic(u, retention__ms="soon"),
        _topic(u, retention__ms=None),
        *(_topic(u, count) for count in (0, -2, TOO_MANY, 1_000_000)),
        _topic(t, TOO_MANY),
        _topic(u, TOO_MANY, retention__ms="soon"),
        _topic("a b", TOO_MANY),
        CreatableTopic(name=u, num_partitions=1, replication_factor=0),
        _assigned(u, [1], [1]),
        _assigned(u, [99]),
    ]
    for each in wanted:
        for checked in (True, False):
            yield "admin", CreateTopicsRequest(topics=[each], validate_only=checked)
    yield "admin", CreateTopicsRequest(topics=[_topic(t)])
    for who, name in (
        ("bob", t),
        ("bob", "a b"),
        ("dan", "dan-kafka"),
        ("dan", u),
        (cat, cat),
        (cat, u),
        (cat, cat),
    ):
        yield who, CreateTopicsRequest(topics=[_topic(name)])
    yield cat, CreateTopicsRequest(topics=[_topic("checked")], validate_only=True)
    yield "bob", CreateTopicsRequest(topics=[_topic(t), _topic("x"), _topic(t)])
    yield from _growth(t, cat)
    yield from _settings(t)
    for who, name in (
        ("admin", MADE_UNASKED),
        ("bob", "auto-2"),
        ("dan", "dan-auto"),
        ("admin", "a b"),
        ("admin", "__mine"),
        (cat, "auto-3"),
    ):
        yield who, MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    for who, state in (
        *(("admin", DeleteTopicState(name=name)) for name in ("absent", "__mine", "__audit", "a b")),
        ("bob", DeleteTopicState(name=t)),
        (cat, DeleteTopicState(name=cat)),
        (cat, DeleteTopicState(name="absent")),
        ("admin", DeleteTopicState(name=t)),
        ("admin", DeleteTopicState(name=t)),
        ("admin", DeleteTopicState(topic_id=b"x" * 16)),
        ("admin", DeleteTopicState(name=MADE_UNASKED, topic_id=b"x" * 16)),
    ):
        yield who, DeleteTopicsRequest(topics=[state])


def _growth(t: str, cat: str) -> Iterator[Asked]:
    grown: list[tuple[str, int, list[list[int]] | None]] = [
        (t, 3, None),
        (t, 3, None),
        (t, 2, None),
        (t, 0, None),
        (t, TOO_MANY, None),
        (t, 1_000_000, None),
        ("absent", 2, None),
        ("__mine", 2, None),
        ("__audit", 2, None),
        (t, 5, [[1]]),
        (t, 4, [[99]]),
        ("absent", 2, [[1]]),
    ]
    for name, count, brokers in grown:
        assigned = (
            None if brokers is None else [CreatePartitionsAssignment(broker_ids=each) for each in brokers]
        )
        topic = CreatePartitionsTopic(name=name, count=count, assignments=assigned)
        for checked in (True, False):
            yield "admin", CreatePartitionsRequest(topics=[topic], validate_only=checked)
    for who, name, count in (("bob", t, 9), ("bob", "absent", 9), (cat, cat, 2), (cat, cat, 1)):
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
        yield who, CreatePartitionsRequest(topics=[topic])


def _settings(t: str) -> Iterator[Asked]:
    for who, kind, name, setting, value in (
        ("admin", 2, t, "retention.ms", " 5000 "),
        ("admin", 2, t, "retention.ms", "soon"),
        ("admin", 2, t, "no.such", "1"),
        ("admin", 2, t, "retention.ms", None),
        ("admin", 2, "absent", "retention.ms", "5000"),
        ("admin", 2, "absent", "retention.ms", "soon"),
        ("admin", 2, "__mine", "retention.ms", "5000"),
        ("admin", 4, "1", "retention.ms", "5000"),
        ("bob", 2, t, "retention.ms", "5000"),
        ("bob", 4, "1", "retention.ms", "5000"),
    ):
        config = configs.AlterableConfig(name=setting, value=value)
        resource = configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
        for checked in (True, False):
            yield who, configs.AlterConfigsRequest(resources=[resource], validate_only=checked)
    for name, setting, act, value in (
        (t, "cleanup.policy", 2, "compact"),
        (t, "cleanup.policy", 3, "delete"),
        (t, "retention.ms", 1, None),
        (t, "retention.ms", 2, "1"),
        (t, "flush.ms", 0, "-1"),
        (t, "flush.ms", 9, "1"),
        ("absent", "flush.ms", 0, "1"),
    ):
        change = configs.IncrementalConfig(name=setting, config_operation=act, value=value)
        found = configs.IncrementalConfigsResource(resource_type=2, resource_name=name, configs=[change])
        for checked in (True, False):
            asked = configs.IncrementalAlterConfigsRequest(resources=[found], validate_only=checked)
            yield "admin", asked


def _topic(name: str, partitions: int = -1, **values: str | None) -> CreatableTopic:
    made = [CreatableTopicConfig(name=each.replace("__", "."), value=value) for each, value in values.items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1, configs=made)


def _assigned(name: str, *brokers: list[int]) -> CreatableTopic:
    parts = [CreatableReplicaAssignment(partition_index=n, broker_ids=each) for n, each in enumerate(brokers)]
    return CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=parts)
