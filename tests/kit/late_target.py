"""The target of a group that a thread computes while the group goes on."""

from dataclasses import dataclass

from coordinator.groups.events import Aimed
from coordinator.groups.state.group import Group
from coordinator.groups.state.target import aim


@dataclass
class LateTarget:
    """Keeps a target that was computed of a group which has not heard of it yet."""

    computed: tuple[Aimed, Group] | None = None

    def compute(self, group: Group) -> None:
        """Compute the target of `group`, if one is due."""
        if group.due_ms is not None:
            self.computed = aim(group), group

    def take(self, group: Group, now_ms: float) -> tuple[Aimed, Group] | None:
        """The event that `group` hears of now: computed some steps before, or due; and the group that it was
        computed of.
        """
        computed, self.computed = self.computed, None
        if computed is None and group.due_ms is not None and group.due_ms <= now_ms:
            return aim(group), group
        return computed
