"""The clients of a group whose members are of every kind, and how their requests end."""

from dataclasses import dataclass
from enum import Enum, auto

from coordinator.groups.state.group import Group
from coordinator.groups.state.member import NOTHING, Partitions


class Kind(Enum):
    """How a client is a member."""

    CONSUMER = auto()
    """By KIP-848."""
    STATIC = auto()
    """By KIP-848, with a group instance id."""
    CLASSIC = auto()
    """By JoinGroup and SyncGroup, eager or cooperative."""
    INSTANCE = auto()
    """Of the HTTP API."""


class Fate(Enum):
    """The end of a request."""

    HEARD = auto()
    UNHEARD = auto()
    LOST = auto()


@dataclass
class Client:
    """A client: its epoch or generation, and what it holds. `owes` is an assignment that it has not followed
    yet; `says_all`: its last request was not answered.
    """

    name: str
    kind: Kind
    lives: int = 0
    member_id: str = ""
    epoch: int = 0
    holds: Partitions = NOTHING
    owes: Partitions | None = None
    says: bool = False
    says_all: bool = False
    joined: bool = False
    leads: tuple[tuple[str, Partitions], ...] = ()
    waits: int | None = None

    @property
    def instance_id(self) -> str | None:
        return self.name if self.kind is Kind.STATIC else None


def counts(client: Client, group: Group) -> bool:
    """Whether what `client` holds counts: it is a member of `group`, by its epoch."""
    ours, classic = group.members.get(client.member_id), group.classic
    if ours is not None:
        return client.kind is Kind.INSTANCE or (client.epoch == ours.epoch and not ours.away)
    member = classic.members.get(client.member_id)
    if member is None:
        return False
    return client.epoch == (classic.generation if member.generation is None else member.generation)
