"""Mirrors as a caller may see them, and what it changes of them, audited once.

The source of a mirror is asked by a command in a process of its own, which changes nothing: a gateway has no
client of Kafka's. What it found is decided on, and written, here.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from api.gateway import Gateway
from coordinator.access.caller import Caller
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.admin import mirror_admin
from log_tables.cluster.admin.mirror_view import MirrorView, view_of
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.metadata_log import MirrorRecord, TopicRecord
from log_tables.errors import InvalidArgument, NotFound

_Answer = TypeVar("_Answer")

ON_GAP = {"stop": False, "record": True}


class SourceTopic(msgspec.Struct, frozen=True):
    """A topic of the source that a mirror would copy, with the settings that its copy gets."""

    topic: str
    partitions: int
    configs: dict[str, str]


class FoundSource(msgspec.Struct, frozen=True):
    """The answer of a source that was asked for the topics of a mirror. `missing` are names that it lacks."""

    cluster_id: str
    topics: Sequence[SourceTopic]
    missing: Sequence[str] = ()


class GroupLeft(msgspec.Struct, frozen=True):
    """An offset of a group that is another one here than at the source, or a group whose offsets are not
    here, without a topic.
    """

    group: str
    topic: str
    partition: int
    source: int | None
    here: int | None
    state: str
    reason: str


class _Prepared(msgspec.Struct, frozen=True):
    groups: Sequence[GroupLeft]


class SeenMirror(NamedTuple):
    """A mirror, and those of its copies that a caller may describe. `whole` says that it may describe the
    cluster, and so know where the source is.
    """

    record: MirrorRecord
    copies: Sequence[TopicRecord]
    whole: bool


def seen_mirrors(here: Gateway, asked: Caller) -> list[SeenMirror]:
    """The mirrors of which `asked` may know, by name, as last refreshed: all with DESCRIBE on the cluster,
    else those with a copy that it may describe.
    """
    whole = asked.allows(Operation.DESCRIBE, ResourceType.CLUSTER)
    found = []
    for name, record in sorted(here.cluster.metadata_log.mirrors.items()):
        copies = [each for each in mirror_admin.copies_of(here.cluster, name) if asked.describes(each.name)]
        if whole or copies:
            found.append(SeenMirror(record, copies, whole))
    return found


def seen_mirror(here: Gateway, asked: Caller, name: str) -> SeenMirror:
    """The mirror `name`, as it is now; blocking. Raises NotFound, also where `asked` may not know of it."""
    here.cluster.refresh()
    for each in seen_mirrors(here, asked):
        if each.record.name == name:
            return each
    raise NotFound(f"there is no mirror {name[:249]!r} that you may see; GET /mirrors lists them")


def shown_mirror(here: Gateway, asked: Caller, seen: SeenMirror) -> MirrorView:
    """How far the copies are that `asked` may describe; blocking, as it reads their tables."""
    processes = here.mirrors.living(seen.record.name)
    return view_of(here.cluster, seen.record, processes, shows=asked.describes)


# What a command is asked, and what it answers.


def asked_source(mirror: MirrorRecord) -> list[str]:
    """The arguments of the command that asks the source of a new mirror for its topics.

    Raises InvalidArgument.
    """
    for each in (mirror.source, *mirror.topics):
        if not each or each.startswith("-"):
            raise InvalidArgument(
                f"{each!r} names no source and no topic; write host:port, and names of topics"
            )
    if not mirror.topics:
        raise InvalidArgument("the mirror names no topics; name some, or patterns that begin with ^")
    gap = "record" if mirror.records_gaps else "stop"
    words = ["mirror", "create", "--dry-run", "--json", f"--source={mirror.source}", f"--on-gap={gap}"]
    return [*words, *(f"--topic={each}" for each in mirror.topics), "--", mirror.name]


def found_source(output: bytes) -> FoundSource:
    """The answer of the command of `asked_source`. Raises InvalidArgument if it is of another version."""
    return _decoded(output, FoundSource)


def groups_left(output: bytes) -> Sequence[GroupLeft]:
    """The answer of the command of `preparation`. Raises as `found_source`."""
    return _decoded(output, _Prepared).groups


def _decoded(output: bytes, kind: type[_Answer]) -> _Answer:
    try:
        return msgspec.json.decode(output, type=kind)
    except msgspec.MsgspecError:
        raise InvalidArgument(
            "the command `lakelog mirror` printed what this gateway cannot read; install one version"
        ) from None


def preparation(name: str, topics: Iterable[str], wait_s: float) -> list[str]:
    """The arguments of the command that waits until copies have the ends of their sources, and brings the
    offsets of groups over.
    """
    words = ["mirror", "promote", "--prepare", "--json", f"--wait={wait_s:g}"]
    return [*words, *(f"--topic={each}" for each in topics), "--", name]


def compared(name: str, topics: Iterable[str], sample: int | None) -> list[str]:
    """The arguments of the command that compares copies with their sources."""
    words = ["mirror", "verify", "--json", *(f"--topic={each}" for each in topics)]
    return [*words, *([] if sample is None else [f"--sample={sample}"]), "--", name]


# Changes; all are blocking.


def new_mirror(
    here: Gateway,
    name: str,
    source: str,
    topics: Sequence[str],
    on_gap: str = "stop",
    groups: Sequence[str] = (mirror_admin.EVERY_GROUP,),
) -> MirrorRecord:
    """The mirror that would be noted, as far as can be said without its source.

    Raises InvalidTopicName, InvalidArgument.
    """
    if on_gap not in ON_GAP:
        raise InvalidArgument(f"on_gap {on_gap!r} is not known; use stop or record")
    made = MirrorRecord(
        name,
        source,
        tuple(topics),
        tuple(groups),
        records_gaps=ON_GAP[on_gap],
        created_ms=here.clock.now_ms(),
    )
    here.cluster.refresh()
    mirror_admin.check_mirror(here.cluster, made)
    return made


def create(here: Gateway, mirror: MirrorRecord, found: FoundSource, dry_run: bool = False) -> None:
    """Note a mirror whose source has answered; with `dry_run`, only see that this could be. Raises as
    `mirror_admin.create_mirror`.
    """
    mirror = msgspec.structs.replace(mirror, cluster_id=found.cluster_id)
    mirror_admin.create_mirror(here.cluster, mirror, [each.topic for each in found.topics], dry_run)


def pause(here: Gateway, name: str) -> None:
    """Raises NotFound."""
    mirror_admin.pause(here.cluster, name)


def resume(here: Gateway, name: str) -> list[str]:
    """The topics that had stopped, and go on. Raises NotFound."""
    return mirror_admin.resume(here.cluster, name)


def check_copies(here: Gateway, name: str, topics: Collection[str], unstopped: bool = False) -> None:
    """Raise NotFound, InvalidArgument unless the mirror makes these topics; if `unstopped`, also where one
    has stopped, which cannot be promoted at its end.
    """
    here.cluster.refresh()
    chosen = mirror_admin.chosen_copies(here.cluster, name, topics)
    if unstopped:
        mirror_admin.check_unstopped(chosen)


def promote(here: Gateway, name: str, topics: Collection[str]) -> list[str]:
    """Make copies topics of this root; returns their names. Raises NotFound, InvalidArgument."""
    apart = Cluster.open(
        here.cluster.store, create=False
    )  # it claims, and a gateway claims by its leadership
    chosen = mirror_admin.chosen_copies(apart, name, topics)
    promoted = mirror_admin.promote_copies(apart, name, chosen)
    here.cluster.refresh()
    return promoted


def delete(here: Gateway, name: str) -> None:
    """Raises NotFound, InvalidArgument."""
    mirror_admin.delete_mirror(here.cluster, name)


def settings_of(topic: SourceTopic) -> str:
    """The settings that a copy gets, as a text."""
    made: Mapping[str, str] = topic.configs
    return " ".join(f"{name}={value}" for name, value in made.items())
