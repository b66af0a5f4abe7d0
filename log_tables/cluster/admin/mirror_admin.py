"""Mirrors in the metadata log, and how they are changed: a mirror is created, paused, resumed and deleted,
one of its topics is made, stopped and promoted.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec.structs import replace

from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.config import TopicConfig
from log_tables.cluster.metadata_log import MirroredFrom, MirrorRecord, MirrorRemoved, TopicRecord
from log_tables.cluster.topic import Topic, check_topic_name
from log_tables.cluster.topic_settings import SETTINGS
from log_tables.counts import counted
from log_tables.errors import InvalidArgument, NotFound, TopicDeleted, TopicExists
from log_tables.limits import RECORD_HARD_MAX_BYTES
from log_tables.spelling import meant

PATTERN = "^"
"""Before a pattern, in place of the name of a topic."""

EVERY_GROUP = "^.*"
"""The groups of a mirror that names none."""

COPIED_SETTINGS = (
    "cleanup.policy",
    "delete.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "retention.bytes",
    "retention.ms",
)
"""The settings of a topic that its copy has, too."""


def mirror_named(cluster: Cluster, name: str) -> MirrorRecord:
    """The mirror as last refreshed. Raises NotFound."""
    return _known(cluster, name, cluster.metadata_log.mirrors.get(name))


def _known(cluster: Cluster, name: str, found: MirrorRecord | None) -> MirrorRecord:
    if found is None:
        hint = meant(name, [*cluster.metadata_log.mirrors]) or "`lakelog mirror list` lists them"
        raise NotFound(f"there is no mirror {name!r}; {hint}")
    return found


def check_mirror(cluster: Cluster, mirror: MirrorRecord) -> None:
    """Raise InvalidTopicName, InvalidArgument unless `mirror` can be created, as far as can be
    said without its source.
    """
    check_topic_name(mirror.name)
    if mirror.name in cluster.metadata_log.mirrors:
        raise InvalidArgument(
            f"there is a mirror {mirror.name} already; choose another name, or delete that one first"
        )
    for each in mirror.topics:
        if not each.startswith(PATTERN):
            check_topic_name(each)
    _check_patterns("--topic", mirror.topics)
    _check_patterns("--group", mirror.groups)
    check_other(cluster, mirror.source, mirror.cluster_id)


def check_other(cluster: Cluster, source: str, cluster_id: str) -> None:
    """Raise InvalidArgument if the cluster at `source` is the one of this root."""
    if cluster_id == cluster.cluster_id:
        raise InvalidArgument(
            f"{source} is a gateway of this root, which cannot be its own copy; name another cluster"
        )


def _check_patterns(option: str, chosen: Iterable[str]) -> None:
    for each in chosen:
        try:
            re.compile(each if each.startswith(PATTERN) else "")
        except re.error as error:
            raise InvalidArgument(f"{option} {each!r} is not a pattern ({error}); correct it") from None


def matching(mirror: MirrorRecord, names: Iterable[str]) -> list[str]:
    """The topics among `names` that `mirror` copies, in order. A pattern is one of Python's, for the whole
    name.
    """
    return _matching(mirror.topics, names)


def matching_groups(mirror: MirrorRecord, names: Iterable[str]) -> list[str]:
    """The groups among `names` whose offsets `mirror` copies, in order; chosen as topics are."""
    return _matching(mirror.groups, names)


def _matching(chosen: Collection[str], names: Iterable[str]) -> list[str]:
    patterns = [re.compile(each) for each in chosen if each.startswith(PATTERN)]
    named = {each for each in chosen if not each.startswith(PATTERN)}
    return sorted(n for n in names if n in named or any(each.fullmatch(n) for each in patterns))


def create_mirror(
    cluster: Cluster, mirror: MirrorRecord, names: Iterable[str], dry_run: bool = False
) -> None:
    """Note a new mirror, of whose topics the source has `names`; with `dry_run`, only see that this could be.

    Raises as `check_mirror`; TopicExists where one of `names` is here already.
    """
    names = [*names]

    def decide(_: MirrorRecord | None) -> MirrorRecord:
        check_mirror(cluster, mirror)
        for name in names:
            _check_free(cluster, name)
        return mirror

    cluster.refresh()
    if dry_run:
        decide(None)
    else:
        cluster.metadata_log.change_mirror(mirror.name, decide)


def _check_free(cluster: Cluster, name: str) -> None:
    topic = cluster.cached_topic(name)
    if topic is not None:
        of = f", which the mirror {topic.mirror} copies" if topic.mirror else ""
        raise TopicExists(f"there is a topic {name} here already{of}; delete it, or leave it out of --topic")


def change_mirror(
    cluster: Cluster, name: str, change: Callable[[MirrorRecord], MirrorRecord]
) -> MirrorRecord:
    """Give the mirror `name` what `change` makes of it. Raises NotFound."""
    cluster.refresh()
    cluster.metadata_log.change_mirror(name, lambda known: change(_known(cluster, name, known)))
    return mirror_named(cluster, name)


def pause(cluster: Cluster, name: str) -> None:
    """Let a mirror copy nothing until `resume`. Raises NotFound."""
    change_mirror(cluster, name, lambda known: replace(known, paused=True))


def resume(cluster: Cluster, name: str) -> list[str]:
    """Let a mirror go on, also with topics that had stopped, which are returned: if the cause is still there,
    they stop again. Raises NotFound.
    """
    change_mirror(cluster, name, lambda known: replace(known, paused=False))
    stopped = [each.name for each in copies_of(cluster, name) if each.mirrored and each.mirrored.stopped]
    for topic in stopped:
        change_copy(cluster, name, topic, lambda known: replace(known, stopped=""))
    return stopped


def delete_mirror(cluster: Cluster, name: str) -> None:
    """Forget a mirror. Raises NotFound, InvalidArgument while it has topics."""

    def decide(known: MirrorRecord | None) -> MirrorRemoved:
        check_deletable(cluster, _known(cluster, name, known).name)
        return MirrorRemoved(name)

    cluster.refresh()
    cluster.metadata_log.change_mirror(name, decide)


def check_deletable(cluster: Cluster, name: str) -> None:
    """Raise InvalidArgument while the mirror `name` has topics, as last refreshed."""
    copies = copies_of(cluster, name)
    if copies:
        raise InvalidArgument(
            f"the mirror {name} has {counted(len(copies), 'topic')}, such as {copies[0].name}; run "
            f"`lakelog mirror promote {name}` first, which makes them topics of this root"
        )


def copies_of(cluster: Cluster, name: str) -> list[TopicRecord]:
    """The topics that the mirror `name` makes, by name, as last refreshed."""
    found = (cluster.metadata_log.topic(each.name) for each in cluster.topics() if each.mirror == name)
    return [each for each in found if each is not None and each.live and each.mirrored is not None]


def create_copy(
    cluster: Cluster, mirror: str, name: str, topic_id: str, partitions: int, settings: Mapping[str, str]
) -> Topic:
    """Make the topic that is to be a copy. Raises as `create_topic`."""
    mirrored = MirroredFrom(mirror, name, topic_id)
    return create_topic(cluster, name, partitions, copied_settings(settings), mirrored=mirrored)


def copied_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that a copy gets of the source's `settings`: COPIED_SETTINGS that are not our defaults."""
    found = {name: settings[name] for name in COPIED_SETTINGS if name in settings}
    if "max.message.bytes" in found:
        found["max.message.bytes"] = str(min(int(found["max.message.bytes"]), RECORD_HARD_MAX_BYTES))
    return {name: value for name, value in found.items() if value != SETTINGS[name].default}


def changed_settings(config: TopicConfig, settings: Mapping[str, str]) -> dict[str, str | None]:
    """The changes that give a copy with `config` what it gets of the source's `settings`; None resets one."""
    wanted, found = copied_settings(settings), config.overrides
    return {name: wanted.get(name) for name in COPIED_SETTINGS if wanted.get(name) != found.get(name)}


def change_copy(
    cluster: Cluster, mirror: str, topic: str, change: Callable[[MirroredFrom], MirroredFrom | None]
) -> bool:
    """Note what `change` makes of how a topic is copied; None makes it a topic like any other. Returns
    whether it was a copy of `mirror`. Raises TopicDeleted.
    """
    was = False

    def decide(known: TopicRecord | None) -> TopicRecord:
        nonlocal was
        if known is None or not known.live:
            raise TopicDeleted(f"the topic {topic} was deleted; nothing of it is copied")
        was = known.mirrored is not None and known.mirrored.mirror == mirror
        return replace(known, mirrored=change(known.mirrored)) if was and known.mirrored else known

    cluster.metadata_log.change_topic(topic, decide)
    return was


def stop_copy(cluster: Cluster, mirror: str, topic: str, reason: str) -> None:
    """Note why a topic is copied no further. Raises TopicDeleted."""
    change_copy(cluster, mirror, topic, lambda known: replace(known, stopped=reason))


def chosen_copies(cluster: Cluster, name: str, topics: Collection[str]) -> list[TopicRecord]:
    """The copies of the mirror `name` that are in `topics`, or all, as last refreshed.

    Raises NotFound for a mirror, InvalidArgument for a topic that is not there.
    """
    mirror_named(cluster, name)
    copies = copies_of(cluster, name)
    for topic in topics:
        if topic not in {each.name for each in copies}:
            hint = (
                meant(topic, [each.name for each in copies]) or f"`lakelog mirror describe {name}` lists them"
            )
            raise InvalidArgument(f"the mirror {name} makes no topic {topic!r}; {hint}")
    return [each for each in copies if not topics or each.name in topics]


def check_unstopped(copies: Collection[TopicRecord]) -> None:
    """Raise InvalidArgument if one of `copies` has stopped: it does not reach the end of its source."""
    for each in copies:
        if each.mirrored and each.mirrored.stopped:
            raise InvalidArgument(
                f"the copy of the topic {each.name} has stopped: {each.mirrored.stopped}; to keep what it "
                "has, add --now"
            )


def promote_copies(cluster: Cluster, name: str, copies: Collection[TopicRecord]) -> list[str]:
    """Make `copies` of the mirror `name` topics of this root, which are copied no more. Returns the
    names of those that it was the first to make so.

    Claims their partitions for no gateway: `cluster` is one of its own.
    """
    promoted = []
    for each in copies:
        if change_copy(cluster, name, each.name, lambda _: None):
            promoted.append(each.name)
            topic_here = cluster.topic(each.name)
            for number in range(topic_here.partition_count):
                cluster.claim(topic_here, number)  # it ends the copy, wherever that runs
    return promoted
