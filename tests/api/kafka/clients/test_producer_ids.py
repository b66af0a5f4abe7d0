"""Ids of producers: so many within the time that they are kept, and no more."""

from api.kafka.clients.door import ProducerIds
from log_tables.clock import ManualClock
from log_tables.limits import BRIEF_PRODUCER_MAX_MS


def test_ids_beyond_the_bound_wait_until_the_first_ones_are_forgotten(clock: ManualClock) -> None:
    ids = ProducerIds(clock, 3)
    first = [ids.take() for _ in range(3)]
    assert None not in first
    assert len({*first}) == 3
    clock.advance(BRIEF_PRODUCER_MAX_MS - 1)
    assert ids.take() is None
    clock.advance(1)
    assert ids.take() not in (None, *first)
