"""The rules of all routes: the operations that each one needs, and what it does beyond reading.

The table names for each route the operations on resources whose names stand in its path. The handler of a
route authorises all else, that a body names or an answer lists, by its `Caller`. A route that is not in the
table cannot be made, nor one that is no GET and does nothing, so a gateway with one does not start.
"""

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import NamedTuple

from log_tables.cluster.acl import Operation, ResourceType


class Requirement(NamedTuple):
    """An operation on the resource that the path parameter `named` names; without one, on the cluster."""

    operation: Operation
    resource_type: ResourceType
    named: str = ""


class Change(NamedTuple):
    """An operation, by Kafka's name if it has one, on the resource that the path parameter `named` names;
    without one its name stands in the body, and the handler says it (`Caller.changing`). Each change is
    audited.
    """

    operation: str
    resource_type: str
    named: str = ""


MIRROR = "MIRROR"
"""The type of resource by which changes of mirrors are audited; no ACL is about it."""


class Traffic(StrEnum):
    """A route that is no GET and changes nothing that is administered."""

    DATA = "data"
    """Records come and go: the first access of an hour is audited."""
    SESSION = "session"
    """A cookie changes. A refused credential is audited where it is refused."""


class Rule(NamedTuple):
    """All of `needs` are needed; without any, every principal is let in. Only a GET `does` nothing."""

    needs: tuple[Requirement, ...] = ()
    does: Change | Traffic | None = None

    @property
    def change(self) -> Change | None:
        """The change that the route makes."""
        return self.does if isinstance(self.does, Change) else None


def _rule(needed: tuple[Operation, ...], resource_type: ResourceType, named: str, change: str) -> Rule:
    needs = tuple(Requirement(operation, resource_type, named) for operation in needed)
    return Rule(needs, Change(change, resource_type, named) if change else None)


def _topic(*needed: Operation, change: str = "") -> Rule:
    return _rule(needed, ResourceType.TOPIC, "topic", change)


def _group(*needed: Operation, change: str = "") -> Rule:
    return _rule(needed, ResourceType.GROUP, "group", change)


def _cluster(*needed: Operation, change: str = "") -> Rule:
    return _rule(needed, ResourceType.CLUSTER, "", change)


def _mirror(change: str, named: str = "mirror") -> Rule:
    return Rule(_cluster(Operation.ALTER).needs, Change(change, MIRROR, named))


def _both(one: Rule, other: Rule) -> Rule:
    return Rule((*one.needs, *other.needs))


_ANY_PRINCIPAL, _READ_GROUP = Rule(), _group(Operation.READ)
_DESCRIBE_TOPIC, _DESCRIBE_CLUSTER = _topic(Operation.DESCRIBE), _cluster(Operation.DESCRIBE)
_DESCRIBE_GROUP = _group(Operation.DESCRIBE)
_JOINED, _WRITE = (Rule(each.needs, Traffic.DATA) for each in (_READ_GROUP, _topic(Operation.WRITE)))
_CREATE_TOPIC = Rule(does=Change("CreateTopics", ResourceType.TOPIC))
_TRANSACT = Rule(
    (*_READ_GROUP.needs, Requirement(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "group")), Traffic.DATA
)
"""The transactional id of a transaction is the name of its group."""

_V2_GROUP, _V2_INSTANCE = "/consumers/{group}", "/consumers/{group}/instances/{instance}"
_V3 = "/v3/clusters/{cluster_id}"
_V3_TOPIC, _V3_GROUP = f"{_V3}/topics/{{topic}}", f"{_V3}/consumer-groups/{{group}}"
_PARTITION = "/topics/{topic}/partitions/{partition}"

RULES: Mapping[str, Rule] = {
    # Version 2: topics and records.
    "GET /topics": _ANY_PRINCIPAL,  # lists what it may describe
    "POST /topics": _CREATE_TOPIC,  # CREATE on the cluster, or on the topic that the body names
    "GET /topics/{topic}": _DESCRIBE_TOPIC,
    "POST /topics/{topic}": _WRITE,
    "POST /topics/{topic}/values": _WRITE,
    "DELETE /topics/{topic}": _topic(Operation.DELETE, change="DeleteTopics"),
    "GET /topics/{topic}/partitions": _DESCRIBE_TOPIC,
    "GET /topics/{topic}/schemas": _topic(Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS),  # it shows columns
    "GET /topics/{topic}/schemas/{schema_id}": _DESCRIBE_TOPIC,
    f"GET {_PARTITION}": _DESCRIBE_TOPIC,
    f"POST {_PARTITION}": _WRITE,
    f"GET {_PARTITION}/offsets": _DESCRIBE_TOPIC,
    f"GET {_PARTITION}/records": _topic(Operation.READ),
    f"DELETE {_PARTITION}/records": _topic(Operation.DELETE, change="DeleteRecords"),
    "GET /brokers": _DESCRIBE_CLUSTER,
    # Deleted topics. To bring one back needs CREATE for the name that it gets, too.
    "GET /deleted-topics": _ANY_PRINCIPAL,  # lists what it may describe
    "POST /deleted-topics/{topic}/undelete": _topic(Operation.DELETE, change="UndeleteTopic"),
    "DELETE /deleted-topics/{topic}": _topic(Operation.DELETE, change="PurgeTopic"),
    "GET /topics/{topic}/deletion": _DESCRIBE_TOPIC,
    "POST /topics/{topic}/restore": _topic(Operation.DELETE, change="RestoreRecords"),
    # Version 2: groups. The topics that bodies name need READ, and what a poll returns.
    f"POST {_V2_GROUP}": _JOINED,
    f"DELETE {_V2_GROUP}": _group(Operation.DELETE, change="DeleteGroups"),
    f"GET {_V2_GROUP}/offsets": _DESCRIBE_GROUP,
    f"PUT {_V2_GROUP}/offsets": _group(Operation.READ, change="AlterConsumerGroupOffsets"),
    f"GET {_V2_GROUP}/undo": _DESCRIBE_GROUP,
    f"POST {_V2_GROUP}/undo": _group(Operation.READ, change="UndoConsumerGroupOffsets"),
    f"POST {_V2_GROUP}/transactions": _TRANSACT,  # WRITE on the topics of its records
    f"DELETE {_V2_INSTANCE}": _JOINED,
    f"POST {_V2_INSTANCE}/heartbeat": _JOINED,
    f"POST {_V2_INSTANCE}/subscription": _JOINED,
    f"GET {_V2_INSTANCE}/subscription": _READ_GROUP,
    f"DELETE {_V2_INSTANCE}/subscription": _JOINED,
    f"POST {_V2_INSTANCE}/assignments": _JOINED,
    f"GET {_V2_INSTANCE}/assignments": _READ_GROUP,
    f"GET {_V2_INSTANCE}/records": _READ_GROUP,
    f"POST {_V2_INSTANCE}/offsets": _JOINED,
    f"GET {_V2_INSTANCE}/offsets": _READ_GROUP,
    f"POST {_V2_INSTANCE}/positions": _JOINED,
    f"POST {_V2_INSTANCE}/positions/beginning": _JOINED,
    f"POST {_V2_INSTANCE}/positions/end": _JOINED,
    f"POST {_V2_INSTANCE}/transactions": _TRANSACT,
    # Version 3.
    "GET /v3/clusters": _ANY_PRINCIPAL,
    f"GET {_V3}": _ANY_PRINCIPAL,
    f"GET {_V3}/brokers": _DESCRIBE_CLUSTER,
    f"GET {_V3}/brokers/{{broker}}": _DESCRIBE_CLUSTER,
    f"GET {_V3}/topics": _ANY_PRINCIPAL,  # lists what it may describe
    f"POST {_V3}/topics": _CREATE_TOPIC,  # as POST /topics
    f"GET {_V3_TOPIC}": _DESCRIBE_TOPIC,
    f"PATCH {_V3_TOPIC}": _topic(Operation.ALTER, change="CreatePartitions"),
    f"DELETE {_V3_TOPIC}": _topic(Operation.DELETE, change="DeleteTopics"),
    f"GET {_V3_TOPIC}/partitions": _DESCRIBE_TOPIC,
    f"GET {_V3_TOPIC}/partitions/{{partition}}": _DESCRIBE_TOPIC,
    f"GET {_V3_TOPIC}/configs": _topic(Operation.DESCRIBE_CONFIGS),
    f"GET {_V3_TOPIC}/configs/{{name}}": _topic(Operation.DESCRIBE_CONFIGS),
    f"POST {_V3_TOPIC}/configs:alter": _topic(Operation.ALTER_CONFIGS, change="AlterConfigs"),
    f"GET {_V3_TOPIC}/history": _topic(Operation.DESCRIBE_CONFIGS),
    f"GET {_V3_TOPIC}/configs:revert": _topic(Operation.DESCRIBE_CONFIGS),
    f"POST {_V3_TOPIC}/configs:revert": _topic(Operation.ALTER_CONFIGS, change="RevertConfigs"),
    f"POST {_V3_TOPIC}/records": _WRITE,
    f"POST {_V3_TOPIC}/records:batch": _WRITE,
    f"GET {_V3}/consumer-groups": _ANY_PRINCIPAL,  # lists what it may describe
    f"GET {_V3_GROUP}": _DESCRIBE_GROUP,
    f"GET {_V3_GROUP}/consumers": _DESCRIBE_GROUP,
    f"GET {_V3_GROUP}/consumers/{{consumer}}": _DESCRIBE_GROUP,
    f"GET {_V3_GROUP}/consumers/{{consumer}}/assignments": _DESCRIBE_GROUP,
    f"GET {_V3_GROUP}/lags": _DESCRIBE_GROUP,
    f"GET {_V3_GROUP}/lags/{{topic}}/partitions/{{partition}}": _both(_DESCRIBE_GROUP, _DESCRIBE_TOPIC),
    f"GET {_V3_GROUP}/lag-summary": _DESCRIBE_GROUP,
    f"GET {_V3}/acls": _DESCRIBE_CLUSTER,
    f"POST {_V3}/acls": _cluster(Operation.ALTER, change="CreateAcls"),
    f"POST {_V3}/acls:batch": _cluster(Operation.ALTER, change="CreateAcls"),
    f"GET {_V3}/acls/history": _DESCRIBE_CLUSTER,
    f"GET {_V3}/acls:revert": _DESCRIBE_CLUSTER,
    f"POST {_V3}/acls:revert": _cluster(Operation.ALTER, change="RevertAcls"),
    f"GET {_V3}/quotas:revert": _DESCRIBE_CLUSTER,
    f"POST {_V3}/quotas:revert": _cluster(Operation.ALTER_CONFIGS, change="RevertClientQuotas"),
    f"DELETE {_V3}/acls": _cluster(Operation.ALTER, change="DeleteAcls"),
    # Mirrors of other clusters. Whoever may describe one of a mirror's topics may see it, and these topics.
    "GET /mirrors": _ANY_PRINCIPAL,
    "GET /mirrors/{mirror}": _ANY_PRINCIPAL,
    "POST /mirrors": _mirror("CreateMirror", ""),
    "POST /mirrors/{mirror}/pause": _mirror("PauseMirror"),
    "POST /mirrors/{mirror}/resume": _mirror("ResumeMirror"),
    "POST /mirrors/{mirror}/promote": _mirror("PromoteMirror"),
    "POST /mirrors/{mirror}/verify": Rule(
        _cluster(Operation.ALTER).needs, Traffic.DATA
    ),  # it reads both sides
    "DELETE /mirrors/{mirror}": _mirror("DeleteMirror"),
    "GET /standbys": _DESCRIBE_CLUSTER,
    # Operations and pages.
    "GET /": _ANY_PRINCIPAL,
    "GET /health": _ANY_PRINCIPAL,
    "GET /ready": _ANY_PRINCIPAL,
    "GET /metrics": _DESCRIBE_CLUSTER,
    "GET /docs": _ANY_PRINCIPAL,
    "GET /docs/files/{name}": _ANY_PRINCIPAL,
    "GET /redoc": _ANY_PRINCIPAL,
    "GET /openapi.json": _ANY_PRINCIPAL,
    # The console. Its pages show what their reader may see; what they change, the routes above do.
    "GET /console": _ANY_PRINCIPAL,
    "GET /console/figures": _DESCRIBE_CLUSTER,
    "GET /console/files/{version}/{name}": _ANY_PRINCIPAL,
    "GET /console/help": _ANY_PRINCIPAL,
    "GET /console/login": _ANY_PRINCIPAL,
    "POST /console/login": Rule(does=Traffic.SESSION),
    "GET /console/login/oidc": _ANY_PRINCIPAL,
    "GET /console/login/oidc/callback": _ANY_PRINCIPAL,
    "POST /console/logout": Rule(does=Traffic.SESSION),
    "GET /console/access": _DESCRIBE_CLUSTER,
    "GET /console/access/keys": _DESCRIBE_CLUSTER,
    "GET /console/access/acls": _DESCRIBE_CLUSTER,
    "GET /console/access/acls/new": _DESCRIBE_CLUSTER,
    "GET /console/access/acls/delete": _DESCRIBE_CLUSTER,
    "GET /console/access/history": _DESCRIBE_CLUSTER,
    "GET /console/access/revert": _DESCRIBE_CLUSTER,
    "GET /console/access/quotas": _DESCRIBE_CLUSTER,
    "GET /console/access/audit": _DESCRIBE_CLUSTER,
    "GET /console/groups": _ANY_PRINCIPAL,  # lists what it may describe
    "GET /console/groups/{group}": _DESCRIBE_GROUP,
    "GET /console/groups/{group}/history": _DESCRIBE_GROUP,
    "GET /console/groups/{group}/reset": _DESCRIBE_GROUP,
    "GET /console/groups/{group}/delete": _DESCRIBE_GROUP,
    "GET /console/groups/{group}/undo": _DESCRIBE_GROUP,
    "GET /console/mirrors": _ANY_PRINCIPAL,  # as GET /mirrors
    "GET /console/mirrors/{mirror}": _ANY_PRINCIPAL,
    "GET /console/mirrors/{mirror}/verify": _cluster(Operation.ALTER),  # it reads both sides
    "GET /console/new-mirror": _DESCRIBE_CLUSTER,  # it asks the source for who may ALTER the cluster
    "GET /console/transactions": _ANY_PRINCIPAL,  # lists what it may describe
    "GET /console/sql": _ANY_PRINCIPAL,  # READ on the topics of a query, DESCRIBE on all else that it shows
    "GET /console/sql/file": _ANY_PRINCIPAL,  # likewise
    "POST /console/sql": Rule(does=Traffic.DATA),  # likewise
    "GET /console/topics": _ANY_PRINCIPAL,  # lists what it may describe
    "GET /console/new-topic": _ANY_PRINCIPAL,
    "GET /console/topics/{topic}": _DESCRIBE_TOPIC,
    f"GET /console{_PARTITION}": _DESCRIBE_TOPIC,  # groups that it may describe; a plan needs the cluster
    f"GET /console{_PARTITION}/commits": _DESCRIBE_TOPIC,
    f"GET /console{_PARTITION}/fsck": _both(_DESCRIBE_TOPIC, _DESCRIBE_CLUSTER),
    "GET /console/maintenance": _DESCRIBE_CLUSTER,  # of topics that it may describe
    "GET /console/maintenance/runs/{run}": _DESCRIBE_CLUSTER,
    "GET /console/topics/{topic}/partitions": _DESCRIBE_TOPIC,
    "GET /console/topics/{topic}/groups": _DESCRIBE_TOPIC,  # lists groups that it may describe
    "GET /console/topics/{topic}/columns": _topic(Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS),
    "GET /console/topics/{topic}/settings": _topic(Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS),
    "GET /console/topics/{topic}/messages": _topic(Operation.READ),
    "GET /console/topics/{topic}/value": _topic(Operation.READ),
    "GET /console/topics/{topic}/export": _topic(Operation.READ),
    "GET /console/topics/{topic}/produce": _topic(Operation.WRITE),
    # Dry runs: the routes that they name need more, and a page says so.
    "GET /console/topics/{topic}/history": _topic(Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS),
    "GET /console/topics/{topic}/revert": _topic(Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS),
    "GET /console/topics/{topic}/alter": _topic(Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS),
    "GET /console/topics/{topic}/grow": _DESCRIBE_TOPIC,
    "GET /console/topics/{topic}/delete": _DESCRIBE_TOPIC,
    "GET /console/deleted-topics": _ANY_PRINCIPAL,  # as GET /deleted-topics
    "GET /console/deleted-topics/{topic}/undelete": _DESCRIBE_TOPIC,
    "GET /console/deleted-topics/{topic}/purge": _DESCRIBE_TOPIC,
    "GET /console/topics/{topic}/delete-records": _DESCRIBE_TOPIC,
    "GET /console/topics/{topic}/restore": _DESCRIBE_TOPIC,
    "GET /console/mirrors/{mirror}/pause": _DESCRIBE_CLUSTER,
    "GET /console/mirrors/{mirror}/resume": _DESCRIBE_CLUSTER,
    "GET /console/mirrors/{mirror}/promote": _DESCRIBE_CLUSTER,
    "GET /console/mirrors/{mirror}/delete": _DESCRIBE_CLUSTER,
}
"""By method and path."""


def rule_of(methods: Collection[str], path: str, rules: Mapping[str, Rule] = RULES) -> Rule:
    """The rule of a route. Raises LookupError for one that has none, or that is no GET and does nothing."""
    (method,) = methods
    rule = rules[f"{method} {path}"]
    if method != "GET" and rule.does is None:
        raise LookupError(f"{method} {path} neither changes anything nor carries records")
    return rule
