"""The offsets that groups have committed: OffsetCommit, OffsetFetch, OffsetDelete.

OffsetFetch is answered by the coordinator, which has the newest ones. A partition without a committed offset
has −1, and is no error.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from api.client_topics import known_id_of, known_name_of
from api.kafka.clients.client import Client
from api.kafka.clients.door import NO_LEADER_EPOCH, Door
from api.kafka.clients.errors import ErrorCode, error_code, group_error_code
from api.kafka.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from api.kafka.protocol.notation import ZERO_UUID, has_more
from coordinator.groups.classic.events import CommitOffsets
from coordinator.groups.events import OffsetAndMetadata
from coordinator.groups.state.classic_step import check_epoch
from coordinator.groups.state.group import Group
from coordinator.groups.state.member import NOTHING, Partitions
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.errors import LakelogError
from log_tables.limits import KAFKA_INLINE_ELEMENTS
from log_tables.table.log_epochs import LogEpochs
from log_tables.topic_partition import TopicPartition

NO_OFFSET = -1

IDS_SINCE = 10
"""The version of OffsetCommit and OffsetFetch from which on topics have ids instead of names (KIP-848)."""

ERROR_SINCE = 2
"""The version of OffsetFetch from which on an answer has an error of its own, besides those of partitions."""

GROUPS_SINCE = 8
"""The version of OffsetFetch from which on there are many groups."""


async def offset_commit(
    door: Door, client: Client, request: OffsetCommitRequest, version: int
) -> OffsetCommitResponse:
    """Each partition has a code of its own. A client that may not read the group learns of no topic."""
    share, is_wide = door.here.loop_share, has_more(request, KAFKA_INLINE_ELEMENTS)
    if not client.caller.may(Operation.READ, ResourceType.GROUP, request.group_id):
        refusal = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return await share.maybe_in_thread(is_wide, lambda: _commit_response(request, lambda *_: refusal))
    asked = await share.maybe_in_thread(is_wide, lambda: _asked(door, client, request, version))
    refused = await _commit(door, client, request, asked.offsets)
    return await share.maybe_in_thread(is_wide, lambda: _committed(request, asked, refused))


class _Commit(NamedTuple):
    """A commit: the names of its topics, the codes of partitions that are refused, and the offsets of the
    others.
    """

    names: list[str]
    codes: dict[tuple[str, int], ErrorCode]
    offsets: dict[TopicPartition, OffsetAndMetadata]


def _asked(door: Door, client: Client, request: OffsetCommitRequest, version: int) -> _Commit:
    names = [_name_of(door, each.topic_id) if version >= IDS_SINCE else each.name for each in request.topics]
    asked = _Commit(names, {}, {})
    for topic, name in zip(request.topics, names, strict=True):
        refusal = _refusal(client, name)
        for each in topic.partitions:
            if refusal is None:
                place = OffsetAndMetadata(
                    each.committed_offset, each.committed_metadata or "", each.committed_leader_epoch
                )
                asked.offsets[TopicPartition(name, each.partition_index)] = place
            else:
                asked.codes[_key(topic), each.partition_index] = refusal
    return asked


def _committed(
    request: OffsetCommitRequest, asked: _Commit, refused: Mapping[TopicPartition, LakelogError] | ErrorCode
) -> OffsetCommitResponse:
    def code_of(place: int, partition: int) -> ErrorCode:
        code = asked.codes.get((_key(request.topics[place]), partition))
        if code is not None:
            return code
        if isinstance(refused, ErrorCode):
            return refused
        at = TopicPartition(asked.names[place], partition)
        return error_code(refused[at]) if at in refused else ErrorCode.NONE

    return _commit_response(request, code_of)


def _commit_response(
    request: OffsetCommitRequest, code_of: Callable[[int, int], ErrorCode]
) -> OffsetCommitResponse:
    """The answer with the code of each partition, of the topic at a place of the request."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=code_of(place, each.partition_index)
                    )
                    for each in topic.partitions
                ],
            )
            for place, topic in enumerate(request.topics)
        ]
    )


def _key(topic: OffsetCommitRequestTopic) -> str:
    return topic.name or topic.topic_id.hex()


def _refusal(client: Client, name: str) -> ErrorCode | None:
    if not name:
        return ErrorCode.UNKNOWN_TOPIC_ID
    may = client.caller.may(Operation.READ, ResourceType.TOPIC, name)
    return None if may else ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def _commit(
    door: Door,
    client: Client,
    request: OffsetCommitRequest,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> Mapping[TopicPartition, LakelogError] | ErrorCode:
    """Why offsets were not committed: each, or all."""
    try:
        event = CommitOffsets(
            offsets=offsets,
            at_ms=door.here.clock.now_ms(),
            member_id=request.member_id,
            generation=request.generation_id_or_member_epoch,
            instance_id=request.group_instance_id,
            context=client.caller.identified,
        )
        return await door.here.classic.commit(request.group_id, event)
    except LakelogError as error:
        return group_error_code(error)


async def offset_fetch(
    door: Door, client: Client, request: OffsetFetchRequest, version: int
) -> OffsetFetchResponse:
    """The committed offsets of the topics that are named, or (null) of all."""
    if version >= GROUPS_SINCE:
        # The last counts of those that are named twice, so an answer is no larger than all offsets are.
        asked_of = {each.group_id: each for each in request.groups}

        async def fetched(group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
            return await _fetched(door, client, group, version, request.require_stable)

        groups = await door.here.loop_share.results(fetched, [*asked_of.values()])
        return OffsetFetchResponse(groups=groups)
    share, is_wide = door.here.loop_share, has_more(request, KAFKA_INLINE_ELEMENTS)
    asked = await share.maybe_in_thread(is_wide, lambda: _as_group(request))
    found = await _fetched(door, client, asked, version, request.require_stable)
    return await share.maybe_in_thread(has_more(found, KAFKA_INLINE_ELEMENTS), lambda: _of_one_group(found))


def _as_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    """A request about one group in the form of those about many."""
    return OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if request.topics is None
        else [
            OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes)
            for each in request.topics
        ],
    )


def _of_one_group(found: OffsetFetchResponseGroup) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        error_code=found.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata,
                        error_code=each.error_code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in found.topics
        ],
    )


async def _fetched(
    door: Door, client: Client, asked: OffsetFetchRequestGroup, version: int, stable: bool
) -> OffsetFetchResponseGroup:
    try:
        client.caller.check(Operation.DESCRIBE, ResourceType.GROUP, asked.group_id)
        group = await door.here.classic.group(asked.group_id)
        if group.members and (asked.member_id or asked.member_epoch >= 0):
            check_epoch(group, asked.member_id or "", None, asked.member_epoch)
    except LakelogError as error:
        return _unknown(asked, group_error_code(error), version)

    def fetched() -> list[OffsetFetchResponseTopics]:
        unstable = group.unstable_partitions if stable else NOTHING
        if asked.topics is None:
            return _all(door, client, group, unstable)
        return [_of_topic(door, client, group, each, unstable) for each in asked.topics]

    looked_at = sum(len(each.offsets) for each in group.unstable.values()) if stable else 0
    if asked.topics is None:
        looked_at += len(group.offsets)
    is_wide = has_more(asked, KAFKA_INLINE_ELEMENTS) or looked_at > KAFKA_INLINE_ELEMENTS
    topics = await door.here.loop_share.maybe_in_thread(is_wide, fetched)
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)


def _unknown(asked: OffsetFetchRequestGroup, code: ErrorCode, version: int) -> OffsetFetchResponseGroup:
    """An old client must not take the error of a group for one that has committed nothing."""
    if version >= ERROR_SINCE:
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=code)
    topics = [
        OffsetFetchResponseTopics(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartitions(partition_index=p, committed_offset=NO_OFFSET, error_code=code)
                for p in topic.partition_indexes
            ],
        )
        for topic in asked.topics or ()
    ]
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)


def _all(door: Door, client: Client, group: Group, unstable: Partitions) -> list[OffsetFetchResponseTopics]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted({*group.offsets, *unstable}):
        by_topic.setdefault(topic, []).append(partition)
    epochs = door.here.cluster.log_epochs
    return [
        OffsetFetchResponseTopics(
            name=name,
            topic_id=_id(door, name),
            partitions=[_offset(epochs, group, name, p, unstable) for p in partitions],
        )
        for name, partitions in by_topic.items()
        if client.caller.describes(name) and name in group.topics
    ]


def _of_topic(
    door: Door, client: Client, group: Group, asked: OffsetFetchRequestTopics, unstable: Partitions
) -> OffsetFetchResponseTopics:
    name = asked.name or _name_of(door, asked.topic_id)
    code = ErrorCode.NONE
    if not name:
        code = ErrorCode.UNKNOWN_TOPIC_ID
    elif not client.caller.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    epochs, numbers = door.here.cluster.log_epochs, dict.fromkeys(asked.partition_indexes)
    return OffsetFetchResponseTopics(
        name=asked.name,
        topic_id=asked.topic_id,
        partitions=[_offset(epochs, group, name, p, unstable, code) for p in numbers],
    )


def _offset(
    epochs: LogEpochs,
    group: Group,
    name: str,
    partition: int,
    unstable: Partitions,
    code: ErrorCode = ErrorCode.NONE,
) -> OffsetFetchResponsePartitions:
    """A leader epoch that is none of this root's was committed by a client of another cluster: a client that
    heard it would ask for newer metadata, for ever, or take the log for a truncated one.
    """
    at = TopicPartition(name, partition)
    if not code and at in unstable:
        code = ErrorCode.UNSTABLE_OFFSET_COMMIT  # the client asks again (KIP-447)
    found = None if code else group.committed(at)
    epoch = NO_LEADER_EPOCH
    if found is not None and found.leader_epoch in epochs.numbers():
        epoch = found.leader_epoch
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=NO_OFFSET if found is None else found.offset,
        committed_leader_epoch=epoch,
        metadata="" if found is None else found.metadata,
        error_code=code,
    )


async def offset_delete(
    door: Door, client: Client, request: OffsetDeleteRequest, _version: int
) -> OffsetDeleteResponse:
    """Only of topics that no member is subscribed to."""
    share, is_wide = door.here.loop_share, has_more(request, KAFKA_INLINE_ELEMENTS)

    def allowed() -> tuple[list[TopicPartition], list[TopicPartition]]:
        asked = [
            TopicPartition(topic.name, each.partition_index)
            for topic in request.topics
            for each in topic.partitions
        ]
        names = {at.topic for at in asked}
        denied = {name for name in names if not client.caller.may(Operation.READ, ResourceType.TOPIC, name)}
        return [at for at in asked if at.topic not in denied], [at for at in asked if at.topic in denied]

    try:
        client.caller.check(Operation.DELETE, ResourceType.GROUP, request.group_id)
        wanted, denied = await share.maybe_in_thread(is_wide, allowed)
        refused = await door.here.classic.delete_offsets(request.group_id, wanted, client.caller.identified)
    except LakelogError as error:
        return OffsetDeleteResponse(error_code=group_error_code(error))
    gone = len(wanted) - len(refused)
    if gone:
        client.caller.note_change("DeleteOffsets", ResourceType.GROUP, request.group_id, offsets=gone)

    def answer() -> list[OffsetDeleteResponseTopic]:
        codes = {at: error_code(error) for at, error in refused.items()}
        codes |= dict.fromkeys(denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return _deleted(request, codes)

    return OffsetDeleteResponse(topics=await share.maybe_in_thread(is_wide, answer))


def _deleted(
    request: OffsetDeleteRequest, codes: Mapping[TopicPartition, ErrorCode]
) -> list[OffsetDeleteResponseTopic]:
    return [
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                OffsetDeleteResponsePartition(
                    partition_index=each.partition_index,
                    error_code=codes.get(TopicPartition(topic.name, each.partition_index), ErrorCode.NONE),
                )
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]


def _name_of(door: Door, topic_id: bytes) -> str:
    """The name of a topic, as known here; empty for an unknown id."""
    return known_name_of(door.here, topic_id.hex()) or ""


def _id(door: Door, name: str) -> bytes:
    topic_id = known_id_of(door.here, name)
    return ZERO_UUID if topic_id is None else bytes.fromhex(topic_id)
