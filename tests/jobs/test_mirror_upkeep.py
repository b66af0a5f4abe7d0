"""The table of a copy stays short although nobody but its copier leads it."""

import numpy as np

from jobs.mirror.control import Upkeep
from log_tables.clock import ManualClock
from log_tables.limits import CHECKPOINT_INTERVAL_COMMITS, LOG_RETENTION_MS
from log_tables.record import input_batch, with_offsets
from log_tables.store.store import Store, open_store
from log_tables.table.offer import has_offer
from log_tables.table.table import Table
from log_tables.testing import ClockedStore
from tests.kit.mirrored import source
from tests.kit.offers import Overtaken, merge
from tests.kit.partitions import TABLE, held, log_versions, new_partition, sound


def test_what_keeps_a_table_short_is_done_beside_a_copier_that_always_is_first(clock: ManualClock) -> None:
    store: Store = ClockedStore(open_store("memory://"), clock)
    leader, upkeep = new_partition(store, clock), Upkeep(clock)

    def step() -> None:
        at = leader.high_watermark
        leader.mirror(with_offsets([input_batch([source(at)], 0)], np.array([at], np.int64)), at + 2)
        upkeep.look_after(leader)

    for _ in range(CHECKPOINT_INTERVAL_COMMITS):
        step()
    assert leader.table.checkpointed == CHECKPOINT_INTERVAL_COMMITS
    assert merge(Table(Overtaken(store, step), TABLE, clock))
    assert not has_offer(store, TABLE)
    clock.advance(LOG_RETENTION_MS + 1)
    step()
    assert min(log_versions(leader)[0]) >= CHECKPOINT_INTERVAL_COMMITS
    assert [*held(leader)] == [*range(0, leader.high_watermark, 2)]
    assert sound(leader)
