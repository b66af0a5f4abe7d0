"""The ACLs of a source that concern a mirror, beside those of the root."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from jobs.mirror.source import Source, SourceAcl
from log_tables.cluster.acl import ANY, Acl, Operation, PatternType, Permission, ResourceType
from log_tables.cluster.admin.mirror_admin import PATTERN, copies_of, matching, mirror_named
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.metadata_log import MirrorRecord
from log_tables.errors import InvalidArgument

_COPIED = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)

OF_THE_CLUSTER = "the cluster"
OF_OTHERS = "delegation tokens or users"
OF_OTHER_TOPICS = "topics that the mirror does not copy"


@dataclass(frozen=True)
class LeftOut:
    """An ACL of the source that cannot be one here, as text, and why."""

    acl: str
    reason: str


@dataclass(frozen=True)
class AclDifference:
    """How the ACLs of a source that concern a mirror differ from those of the root.

    `elsewhere` counts those of the source that do not concern it, by what they are about. `wide` has those of
    `missing` that also cover topics here which are no copies of the mirror, with their names.
    """

    missing: list[Acl]
    only_here: list[Acl]
    equal: int
    left_out: list[LeftOut]
    elsewhere: dict[str, int]
    wide: dict[Acl, list[str]]


def acl_difference(
    cluster: Cluster, name: str, source: Source, checked: Callable[[Acl], Acl]
) -> AclDifference:
    """Compare the ACLs of `source` that concern the mirror `name` with those here, as they are now. `checked`
    gives an ACL the form that it has here, and raises InvalidArgument where it has none.

    Those on topics concern it that cover one of its topics, and all on groups and transactional ids. Raises
    InvalidArgument, Unreachable, AuthorizationFailed, NoAcls.
    """
    cluster.refresh()
    concerned = _Concerned(cluster, mirror_named(cluster, name), source.topics())
    there, left_out, elsewhere = set[Acl](), list[LeftOut](), Counter[str]()
    for each in source.acls():
        if each.resource_type not in _COPIED:
            known = each.resource_type == ResourceType.CLUSTER
            elsewhere[OF_THE_CLUSTER if known else OF_OTHERS] += 1
        elif not concerned.has(each):
            elsewhere[OF_OTHER_TOPICS] += 1
        else:
            try:
                there.add(checked(_acl(each)))
            except InvalidArgument as error:
                left_out.append(LeftOut(str(each), str(error)))
    here = {
        acl for acl in cluster.metadata_log.access.acls if acl.resource_type in _COPIED and concerned.has(acl)
    }
    missing = sorted(there - here)
    return AclDifference(
        missing=missing,
        only_here=sorted(here - there),
        equal=len(there & here),
        left_out=sorted(left_out, key=lambda each: (Permission.ALLOW in each.acl, each.acl)),
        elsewhere=dict(elsewhere),
        wide={acl: covered for acl in missing if (covered := concerned.others_covered_by(acl))},
    )


class _Concerned:
    """Tells which ACLs concern a mirror."""

    def __init__(self, cluster: Cluster, mirror: MirrorRecord, there: Iterable[str]) -> None:
        self._mirror = mirror
        named = [each for each in mirror.topics if not each.startswith(PATTERN)]
        copies = [each.name for each in copies_of(cluster, mirror.name)]
        self._own = sorted({*matching(mirror, there), *named, *copies})
        self._others = sorted({topic.name for topic in cluster.topics()} - {*self._own})

    def has(self, acl: Acl | SourceAcl) -> bool:
        name = acl.resource_name
        if acl.resource_type != ResourceType.TOPIC or name == ANY:
            return True
        if acl.pattern_type == PatternType.PREFIXED:
            return _begins(self._own, name)
        return name in self._own or bool(matching(self._mirror, [name]))

    def others_covered_by(self, acl: Acl) -> list[str]:
        """The topics here that are no copies, and that an ACL on topics covers."""
        if acl.resource_type is not ResourceType.TOPIC:
            return []
        if acl.pattern_type is PatternType.PREFIXED:
            return [name for name in self._others if name.startswith(acl.resource_name)]
        return self._others if acl.resource_name == ANY else []


def _begins(names: Sequence[str], prefix: str) -> bool:
    """Whether one of `names`, which are sorted, begins so."""
    at = bisect_left(names, prefix)
    return at < len(names) and names[at].startswith(prefix)


def _acl(found: SourceAcl) -> Acl:
    """Raises InvalidArgument for what Kafka has and we do not."""
    try:
        return Acl(
            ResourceType(found.resource_type),
            found.resource_name,
            PatternType(found.pattern_type),
            found.principal,
            found.host,
            Operation(found.operation),
            Permission(found.permission),
        )
    except ValueError:
        raise InvalidArgument(
            "its operation or its kind of pattern is not known here; allow or deny by hand what it is for"
        ) from None
