"""Pure: the steps after which a catalog has the entries that it should have."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from jobs.catalog.entry import DIGEST, TOPIC, Entry
from log_tables.layout import PROPERTY_CLUSTER

NAME_MAX_CHARS = 255
"""No catalog takes a longer name of a table."""


class Act(Enum):
    """The act of a step. To skip is to leave a name to whoever has it."""

    CREATE = "create"
    REPLACE = "replace"
    DROP = "drop"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Found:
    """A table of the catalog's schema, with its properties. Theirs has no PROPERTY_CLUSTER, or another."""

    name: str
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Step:
    """One step for the table `name` of `topic`. `entry` is what is made, and `why` says why it is skipped."""

    act: Act
    name: str
    topic: str
    entry: Entry | None = None
    why: str = ""


def plan(
    wanted: Iterable[Entry], found: Iterable[Found], cluster_id: str, kept: Collection[str] = ()
) -> list[Step]:
    """The steps from `found` to `wanted`, in the order of names, those that remove first.

    A table that another cluster or another program made is left as it is, and so is one whose name is among
    `kept`: its topic is there, and could not be read.
    """
    there = {each.name.lower(): each for each in found}
    entries = {each.name: each for each in wanted}
    drops, others = [], []
    for key, table in sorted(there.items()):
        is_ours = table.properties.get(PROPERTY_CLUSTER) == cluster_id
        if is_ours and key not in entries and key not in kept:
            drops.append(Step(Act.DROP, table.name, table.properties.get(TOPIC, "")))
    for name, entry in sorted(entries.items()):
        step = _step(entry, there.get(name), cluster_id)
        if step is not None:
            others.append(step)
    return [*drops, *others]


def _step(entry: Entry, table: Found | None, cluster_id: str) -> Step | None:
    if len(entry.name) > NAME_MAX_CHARS:
        why = f"its name has {len(entry.name)} characters, and catalogs take {NAME_MAX_CHARS}"
        return Step(Act.SKIP, entry.name, entry.topic, why=why)
    if table is None:
        return Step(Act.CREATE, entry.name, entry.topic, entry)
    owner = table.properties.get(PROPERTY_CLUSTER)
    if owner != cluster_id:
        whose = f"the lakelog cluster {owner}" if owner else "another program"
        why = f"{whose} has a table of this name; rename or drop it there, or name another schema"
        return Step(Act.SKIP, table.name, entry.topic, why=why)
    if table.properties.get(DIGEST) == entry.digest:
        return None
    return Step(Act.REPLACE, table.name, entry.topic, entry)
