"""The APIs that are described: their keys, their versions and their messages.

An API has the name of its key: FETCH has FetchRequest and FetchResponse, in some module of `messages`.
"""

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Final, NamedTuple

from api.kafka.protocol import messages
from api.kafka.protocol.notation import Message

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14
DESCRIBE_GROUPS: Final = 15
LIST_GROUPS: Final = 16
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
DELETE_RECORDS: Final = 21
INIT_PRODUCER_ID: Final = 22
OFFSET_FOR_LEADER_EPOCH: Final = 23
ADD_PARTITIONS_TO_TXN: Final = 24
ADD_OFFSETS_TO_TXN: Final = 25
END_TXN: Final = 26
TXN_OFFSET_COMMIT: Final = 28
DESCRIBE_ACLS: Final = 29
CREATE_ACLS: Final = 30
DELETE_ACLS: Final = 31
DESCRIBE_CONFIGS: Final = 32
ALTER_CONFIGS: Final = 33
DESCRIBE_LOG_DIRS: Final = 35
SASL_AUTHENTICATE: Final = 36
CREATE_PARTITIONS: Final = 37
DELETE_GROUPS: Final = 42
ELECT_LEADERS: Final = 43
INCREMENTAL_ALTER_CONFIGS: Final = 44
LIST_PARTITION_REASSIGNMENTS: Final = 46
OFFSET_DELETE: Final = 47
DESCRIBE_CLIENT_QUOTAS: Final = 48
ALTER_CLIENT_QUOTAS: Final = 49
DESCRIBE_USER_SCRAM_CREDENTIALS: Final = 50
ALTER_USER_SCRAM_CREDENTIALS: Final = 51
DESCRIBE_QUORUM: Final = 55
DESCRIBE_CLUSTER: Final = 60
DESCRIBE_PRODUCERS: Final = 61
DESCRIBE_TRANSACTIONS: Final = 65
LIST_TRANSACTIONS: Final = 66
CONSUMER_GROUP_HEARTBEAT: Final = 68
CONSUMER_GROUP_DESCRIBE: Final = 69
LIST_CONFIG_RESOURCES: Final = 74
DESCRIBE_TOPIC_PARTITIONS: Final = 75

_KEYS: Final = {name: value for name, value in [*globals().items()] if name.isupper() and type(value) is int}


class Api(NamedTuple):
    """An API: a request, and the response to it in the same version."""

    key: int
    request: type[Message]
    response: type[Message]

    @property
    def name(self) -> str:
        return self.request.__name__.removesuffix("Request")

    @property
    def advertised_min(self) -> int:
        """The least version that ApiVersions names."""
        least = self.request.advertised_min
        return self.min_version if least is None else least

    @property
    def min_version(self) -> int:
        return self.request.versions.first

    @property
    def max_version(self) -> int:
        return self.request.versions.last

    @property
    def first_flexible(self) -> int:
        return self.request.first_flexible


def _described() -> Mapping[int, Api]:
    modules = [import_module(f"{messages.__name__}.{each.name}") for each in iter_modules(messages.__path__)]
    found = {name: value for module in modules for name, value in vars(module).items()}
    names = {key: "".join(word.capitalize() for word in name.split("_")) for name, key in _KEYS.items()}
    return {key: Api(key, found[f"{name}Request"], found[f"{name}Response"]) for key, name in names.items()}


APIS: Final[Mapping[int, Api]] = MappingProxyType(_described())
"""All of them by their keys. The listener decides which of these a gateway offers."""
