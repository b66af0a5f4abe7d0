"""Faults that are planted in the code, to see that a world finds them: see docs/testing.md.

A fault is the text of a function with some of it replaced, a mistake that a reviewer could pass. It is
applied in memory: the module is compiled with the other text, and the live function is given the code that
comes of it.
"""

import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import CodeType, FunctionType
from typing import Any

from log_tables.clock import SystemClock
from tests.simulation.world import Plan, RunOutcome, World

STEPS = 2_000


class NoLongerApplies(AssertionError):
    """The code has moved on from what a planted fault replaces."""


@dataclass(frozen=True, slots=True)
class Planted:
    """A fault: in `function` of `module` the text `before`, which is there once, becomes `after`.

    `judge` is a part of what is said about it, `seed` a run of `profile` that says it, in `steps` steps, with
    `scene` if one is named.
    """

    name: str
    module: str
    function: str
    before: str
    after: str
    judge: str
    seed: int
    steps: int
    profile: str = ""
    scene: str = ""

    def plan(self, seed: int) -> Plan:
        """The plan of a seed, which has the scene of the fault if it names one."""
        plan = Plan.of(seed, STEPS, self.profile)
        if not self.scene:
            return plan
        return replace(plan, scenes=(self.scene,), maintainers=plan.maintainers or (0.5,))

    @property
    def worlds(self) -> str:
        """Where it is looked for."""
        return ", ".join(each for each in (self.profile or "any", self.scene) if each)


@contextmanager
def planted(fault: Planted) -> Iterator[None]:
    """Let the code have `fault`. Raises NoLongerApplies."""
    module = importlib.import_module(fault.module)
    source = inspect.getsource(module)
    where = f"the planted fault {fault.name!r} no longer applies: {fault.module}"
    if (count := source.count(fault.before)) != 1:
        raise NoLongerApplies(f"{where} has {count} times {fault.before!r}; plant it where the code is now")
    assert module.__file__ is not None
    whole = compile(source.replace(fault.before, fault.after), module.__file__, "exec", dont_inherit=True)
    code = next((each for each in _codes(whole) if each.co_qualname == fault.function), None)
    live = _live(module, fault.function)
    if code is None or live is None:
        raise NoLongerApplies(f"{where} has no function {fault.function}; name the one that has it now")
    good = live.__code__
    if code == good or code.co_freevars != good.co_freevars:
        raise NoLongerApplies(f"{where}: {fault.function} is not changed by it, or closes over other names")
    _give(live, code)
    try:
        yield
    finally:
        _give(live, good)


def _give(function: FunctionType, code: CodeType) -> None:
    object.__setattr__(function, "__code__", code)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)


def _live(module: Any, name: str) -> FunctionType | None:
    """The function with this qualified name, below what decorates it."""
    found = module
    for part in name.split("."):
        found = inspect.getattr_static(found, part, None)
    if isinstance(found, property):
        found = found.fget
    found = inspect.unwrap(getattr(found, "__func__", found))
    return found if isinstance(found, FunctionType) else None


FAULTS: tuple[Planted, ...] = (
    Planted(
        "a commit is put before its segment is durable",
        "log_tables.store.local",
        "LocalStore._put_both",
        "self._at_once(first.make_durable, temporary.make_durable)",
        "temporary.make_durable()",
        "not within 60 s: everything works again",
        0,
        8_040,
        "power",
    ),
    Planted(
        "an answer does not wait for the directory of the commit",
        "log_tables.store.local",
        "LocalStore._put_both",
        "self._at_once(first.make_durable, temporary.make_durable)\n"
        "            with unsure(path):\n"
        "                self._sync_names(self._give_name(temporary, path))",
        "self._at_once(first.make_durable, temporary.make_durable)\n"
        "            with unsure(path):\n"
        "                self._give_name(temporary, path)",
        "is next; send the batches in order",
        0,
        1_633,
        "power",
    ),
    Planted(
        "a directory is made durable without those above it",
        "log_tables.store.local",
        "LocalStore._sync_names",
        "if directory != self._root and self._durable.get(directory) != identity:",
        "if directory == self._root:",
        "not within 60 s: everything works again",
        0,
        2_151,
        "power",
    ),
    Planted(
        "a put if absent replaces what is there",
        "log_tables.store.local",
        "LocalStore._give_name",
        "error = link(temporary.path, final)",
        "error = os.replace(temporary.path, final)",
        "breaks the log",
        1,
        280,
    ),
    Planted(
        "the error of a link is believed, without a look",
        "log_tables.store.file",
        "link",
        "return error if os.stat(temporary).st_nlink == 1 else None",
        "return error",
        "a write that failed is there",
        74,
        17_970,
        "store",
    ),
    Planted(
        "a refusal after a lost answer is taken for certain",
        "log_tables.table.commit",
        "put_commit",
        "            if certain:\n                raise\n",
        "            raise\n",
        "a write that failed is there",
        94,
        4_085,
        "store",
    ),
    Planted(
        "a bucket that says that a commit is there is believed",
        "log_tables.table.commit",
        "put_commit",
        "        except (AlreadyExists, OutcomeUnknown, StoreUnavailable):\n            certain = False\n",
        "        except AlreadyExists:\n"
        "            return _read_back(store, table, version)\n"
        "        except (OutcomeUnknown, StoreUnavailable):\n"
        "            certain = False\n",
        "is next; send the batches in order",
        23,
        2_452,
        "bucket",
    ),
    Planted(
        "a commit that is not there after a lost answer never comes",
        "log_tables.table.commit",
        "put_commit",
        "        if clock.monotonic() >= deadline:\n            raise OutcomeUnknown(\n",
        "        if found is None:\n"
        '            raise StoreUnavailable("the store does not answer")\n'
        "        if clock.monotonic() >= deadline:\n            raise OutcomeUnknown(\n",
        "a write that failed is there",
        93,
        6_111,
        "bucket",
    ),
    Planted(
        "a commit does not check whose epoch it is",
        "log_tables.partition.partition",
        "Partition._check_turn",
        "if snapshot.leader_epoch != self._epoch or snapshot.high_watermark != base:",
        "if snapshot.high_watermark != base:",
        "was changed after it was written",
        2,
        4_832,
    ),
    Planted(
        "sequences of producers are forgotten at a take-over",
        "log_tables.partition.sequencer",
        "Sequencer._known",
        "return self._producers.get(producer_id) or self.snapshot.producer(producer_id)",
        "return self._producers.get(producer_id)",
        "UNKNOWN_PRODUCER_ID",
        0,
        1_675,
        "deaths",
    ),
    Planted(
        "groups are taken over without a look at what others appended",
        "coordinator.groups.shards",
        "Shards._load",
        "        await asyncio.to_thread(shard.read)\n",
        "        if partition not in self._shards:\n            await asyncio.to_thread(shard.read)\n",
        "an acknowledged value is not there",
        2,
        4_782,
        "store",
    ),
    Planted(
        "a change of a group is answered before it is durable",
        "coordinator.groups.shard",
        "Shard.wait_durable",
        "if done is not None:",
        "if done is not None and done.done():",
        "a member was given again what it had committed",
        0,
        5_456,
        "store",
    ),
    Planted(
        "a member is given what another one still owns",
        "coordinator.groups.state.step",
        "_polled",
        "owned = group.free(target, member.id)",
        "owned = target",
        "at once",
        119,
        6_128,
        "deaths",
        "reset",
    ),
    Planted(
        "retry keys are forgotten at a take-over",
        "coordinator.groups.state.group_records",
        "restore",
        "transaction_state.remember(counts.get(group), intents[group], retries[group])",
        "transaction_state.remember(counts.get(group), intents[group], {})",
        "a value is there more than once",
        72,
        3_098,
        "deaths",
    ),
    Planted(
        "a transaction is applied before it is durable",
        "coordinator.groups.transactions.transaction_coordinator",
        "TransactionCoordinator._committed",
        "        await shard.wait_durable(group_id)\n"
        '        self._on_event("committed")\n'
        "        self._apply_up_to(shard, group_id, number)",
        "        self._apply_up_to(shard, group_id, number)\n"
        "        await shard.wait_durable(group_id)\n"
        '        self._on_event("committed")',
        "a value is there more than once",
        72,
        3_344,
        "store",
    ),
    Planted(
        "staged files are deleted before their transaction is marked",
        "coordinator.groups.transactions.transaction_coordinator",
        "TransactionCoordinator._delete_applied",
        "            await shard.wait_durable(group_id)\n"
        "            await asyncio."
        "sleep(keep_s)\n"
        "            shard.check_leading()\n"
        "            await self",
        "            await self",
        "not within 60 s",
        8,
        14_620,
        "store",
    ),
    Planted(
        "a vacuum goes by the age of files alone",
        "log_tables.table.vacuum",
        "_look",
        "        if name in due:\n",
        "        if name in due or item.modified_ms < found.began_ms - replaced_ms:\n",
        "is missing",
        19,
        18_720,
        "hours",
    ),
    Planted(
        "retention looks at the oldest record of a segment",
        "log_tables.table.first_segments",
        "too_old",
        "if item.max_timestamp >= oldest",
        "if item.min_timestamp >= oldest",
        "before its time",
        6,
        5_901,
        "jobs",
        "expired",
    ),
    Planted(
        "a fold does not look for versions of other gateways",
        "api.process.fold_duty",
        "FoldDuty._has_changed",
        "moved = partition.refresh().version != state.version",
        "moved = partition.snapshot.version != state.version",
        "not within 60 s: topics are folded",
        1,
        14_940,
        "deaths",
    ),
)


def run(fault: Planted, seed: int) -> RunOutcome:
    """The run of a seed with the fault."""
    with planted(fault):
        return World(fault.plan(seed)).run()


def search(fault: Planted, seconds: float) -> RunOutcome | None:
    """The run of the first seed, from 0 on, that finds the fault; None if none does in time."""
    clock = SystemClock()
    until, seed = clock.monotonic() + seconds, 0
    while clock.monotonic() < until:
        found = run(fault, seed)
        if found.problems:
            return found
        seed += 1
    return None
