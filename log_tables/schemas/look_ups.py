"""How often a source is asked for schemas that are not known."""

from collections.abc import Iterable

from log_tables.clock import Clock
from log_tables.limits import LOOK_UP_AGAIN_S, LOOK_UPS_BURST, LOOK_UPS_NOTED_MAX, LOOK_UPS_PER_S
from log_tables.schemas.schema import SchemaId


class LookUps:
    """Gives out the look-ups of one source: a `burst` at once, then `per_s` in a second. Not thread-safe.

    An id that stays unknown is asked for once in LOOK_UP_AGAIN_S, and leaves half of a burst to others, so
    that a new id is asked for at once while strangers send ids that nobody knows.
    """

    def __init__(self, clock: Clock, burst: int = LOOK_UPS_BURST, per_s: float = LOOK_UPS_PER_S) -> None:
        self._clock, self._burst, self._per_s = clock, burst, per_s
        self._left, self._at = float(burst), clock.monotonic()
        self._asked: dict[SchemaId, float] = {}

    def due(self, ids: Iterable[SchemaId], together: bool = False) -> list[SchemaId]:
        """The ones of `ids` that are asked for now, and noted as such; `together` one look-up is for all."""
        now = self._clock.monotonic()
        self._left = min(self._left + (now - self._at) * self._per_s, self._burst)
        self._at = now
        found: list[SchemaId] = []
        for schema_id in ids:
            paid = together and bool(found)
            if paid or self._may_ask(schema_id, now):
                self._left -= 0 if paid else 1
                found.append(schema_id)
                self._note(schema_id, now)
        return found

    def _may_ask(self, schema_id: SchemaId, now: float) -> bool:
        asked = self._asked.get(schema_id)
        if asked is None:
            return self._left >= 1
        return now - asked >= LOOK_UP_AGAIN_S and self._left >= 1 + self._burst / 2

    def _note(self, schema_id: SchemaId, now: float) -> None:
        self._asked.pop(schema_id, None)
        self._asked[schema_id] = now
        if len(self._asked) > LOOK_UPS_NOTED_MAX:
            del self._asked[next(iter(self._asked))]
