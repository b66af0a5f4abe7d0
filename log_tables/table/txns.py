"""The txns of a table: those of producers as columns, which may be many, and the others by their names.

Each idempotent producer leaves two, and so does each request with an `Idempotency-Key` in each partition to
which it wrote. A busy partition keeps hundreds of thousands: a producer takes 48 bytes as columns, and 560 as
objects of a dict.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from log_tables.layout import PRODUCER_TXN, producer_end_txn, producer_of_txn, producer_sequence_txn
from log_tables.limits import (
    BRIEF_PRODUCER_ID_MIN,
    BRIEF_PRODUCER_MAX_MS,
    BRIEF_PRODUCER_MIN_MS,
    KEPT_PRODUCER_ID_MAX,
    PRODUCER_ID_MAX,
)
from log_tables.record import int64s
from log_tables.table.commit import Txn

_NEVER = -(2**63)
"""The time of a txn that has no `lastUpdated`, in a column."""

_RECENT_MAX = 2_048
"""So many txns of producers are objects, before they become columns: each commit copies what is recent, and
each time that columns are made, all of them are."""


@dataclass(frozen=True, slots=True)
class ProducerState:
    """The state of an idempotent producer in the log (KIP-98).

    A producer that is `kept` is lakelog's own: its txns have no `lastUpdated`, so it is never forgotten.
    """

    epoch: int
    next_sequence: int
    end_offset: int
    kept: bool = False

    @property
    def packed(self) -> int:
        """Epoch and next sequence as the version of a txn."""
        return (self.epoch << 32) + self.next_sequence


class _Columns(NamedTuple):
    """Txns of producers, sorted by their codes (uint64). Versions and times are int64."""

    codes: np.ndarray
    versions: np.ndarray
    times: np.ndarray


_EMPTY = _Columns(np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.int64))


class Txns(Mapping[str, Txn]):
    """The newest txn of each application, by its `appId`: a value, of which `after` gives the next one.

    The newest ones of producers are kept as they came, by their codes, and count before the columns.
    """

    __slots__ = ("_columns", "_named", "_recent")

    def __init__(self, txns: Iterable[Txn] = ()) -> None:
        self._named: dict[str, Txn] = {}
        self._columns, self._recent = _EMPTY, dict[int, Txn]()
        self._add(txns)

    def _add(self, txns: Iterable[Txn]) -> None:
        """Have `txns`, too; only while this value is made."""
        named, recent = dict[str, Txn](), dict[int, Txn]()
        for txn in txns:
            code = _code(txn.app_id)
            if code is None:
                named[txn.app_id] = txn
            else:
                recent[code] = txn
        self._named, self._recent = {**self._named, **named}, {**self._recent, **recent}
        if len(self._recent) > _RECENT_MAX:
            self._columns, self._recent = self._whole(), {}

    def named(self, app_id: str) -> Txn | None:
        """The txn of an application that is no producer; None without one. A plain look-up: it is asked for
        all the time.
        """
        return self._named.get(app_id)

    def all_named(self) -> Iterable[Txn]:
        """The txns of applications that are no producers."""
        return self._named.values()

    def after(self, txns: Iterable[Txn]) -> "Txns":
        """These, with `txns` in the place of older ones of the same applications."""
        made = self._copy(self._named, self._columns, self._recent)
        made._add(txns)
        return made

    def without(self, app_id: str) -> "Txns":
        """These but for the txn of `app_id`, which is no producer's."""
        named = {name: txn for name, txn in self._named.items() if name != app_id}
        return self._copy(named, self._columns, self._recent)

    def pruned(self, now_ms: int, producer_expiration_ms: int) -> "Txns":
        """These without those that are to be forgotten: of producers that have been idle for so long, or for
        as long as a brief one is kept.
        """
        named = {
            name: txn
            for name, txn in self._named.items()
            if txn.last_updated is None or txn.last_updated > now_ms - producer_expiration_ms
        }
        brief_ms = min(max(producer_expiration_ms, BRIEF_PRODUCER_MIN_MS), BRIEF_PRODUCER_MAX_MS)
        codes, versions, times = self._whole()
        brief = (codes >= 2 * BRIEF_PRODUCER_ID_MIN) & (codes <= 2 * PRODUCER_ID_MAX + 1)
        stay = (times == _NEVER) | (
            times > np.where(brief, now_ms - brief_ms, now_ms - producer_expiration_ms)
        )
        return self._copy(named, _Columns(codes[stay], versions[stay], times[stay]), {})

    @classmethod
    def _copy(cls, named: dict[str, Txn], columns: _Columns, recent: dict[int, Txn]) -> "Txns":
        made = cls()
        made._named, made._columns, made._recent = named, columns, recent
        return made

    @classmethod
    def of_columns(cls, names: pa.Array, versions: pa.Array, times: pa.Array) -> "Txns":
        """The txns of a checkpoint, as its columns appId, version and lastUpdated.

        Raises ValueError where a txn has no appId or no version.
        """
        if names.null_count or versions.null_count:
            raise ValueError("a txn has no appId, or no version")
        names, versions, times = names.cast(pa.string()), versions.cast(pa.int64()), times.cast(pa.int64())
        found = pc.extract_regex(names, f"^{PRODUCER_TXN}$")
        ids = pc.struct_field(found, "id").cast(pa.uint64())
        known = pc.less_equal(ids, pa.scalar(KEPT_PRODUCER_ID_MAX, pa.uint64())).fill_null(False)
        others = (column.filter(pc.invert(known)).to_pylist() for column in (names, versions, times))
        ends = pc.equal(pc.struct_field(found, "kind"), "end").cast(pa.uint64())
        codes = pc.add(pc.multiply(ids, pa.scalar(2, pa.uint64())), ends)
        packed = (int64s(column.filter(known)) for column in (codes, versions, times.fill_null(_NEVER)))
        made = cls(Txn(*row) for row in zip(*others, strict=True))
        made._columns = _sorted(*packed)
        return made

    def columns(self) -> tuple[pa.Array, pa.Array, pa.Array]:
        """The columns appId, version and lastUpdated of a checkpoint."""
        codes, versions, times = self._whole()
        ids = _arrow(codes >> np.uint64(1), pa.uint64()).cast(pa.string())
        kinds = pc.if_else(pc.equal(_arrow(codes & np.uint64(1), pa.uint64()), 1), ".end", ".seq")
        updated = _arrow(times, pa.int64())
        updated = pc.if_else(pc.equal(updated, _NEVER), pa.scalar(None, pa.int64()), updated)
        named = self._named.values()
        return (
            pa.concat_arrays(
                [
                    pa.array([txn.app_id for txn in named], pa.string()),
                    pc.binary_join_element_wise("lakelog.producer.", ids, kinds, ""),
                ]
            ),
            pa.concat_arrays(
                [pa.array([txn.version for txn in named], pa.int64()), _arrow(versions, pa.int64())]
            ),
            pa.concat_arrays([pa.array([txn.last_updated for txn in named], pa.int64()), updated]),
        )

    def producer(self, producer_id: int) -> ProducerState | None:
        """The state of a producer; None if the log does not know it."""
        sequence = self._at(2 * producer_id) if 0 <= producer_id <= KEPT_PRODUCER_ID_MAX else None
        end = None if sequence is None else self._at(2 * producer_id + 1)
        if sequence is None or end is None:
            return None
        (version, time), (end_offset, _) = sequence, end
        return ProducerState(version >> 32, version & 0xFFFFFFFF, end_offset, time is None)

    def producer_ids(self) -> set[int]:
        """The ids of all producers that the log knows."""
        return {*(self._columns.codes >> np.uint64(1)).tolist(), *(code >> 1 for code in self._recent)}

    def producers(self) -> Iterator[tuple[int, ProducerState, int]]:
        """The id and the state of each producer that is forgotten in time, and when it was heard of last, in
        milliseconds since 1970.
        """
        for producer_id in sorted(self.producer_ids()):
            state, sequence = self.producer(producer_id), self._at(2 * producer_id)
            if state is not None and sequence is not None and sequence[1] is not None:
                yield producer_id, state, sequence[1]

    def _at(self, code: int) -> tuple[int, int | None] | None:
        """The version and the time of a producer's txn."""
        recent = self._recent.get(code)
        if recent is not None:
            return recent.version, recent.last_updated
        codes, versions, times = self._columns
        index = int(codes.searchsorted(np.uint64(code)))
        if index == len(codes) or codes[index] != code:
            return None
        time = int(times[index])
        return int(versions[index]), None if time == _NEVER else time

    def _whole(self) -> _Columns:
        """All txns of producers as columns."""
        if not self._recent:
            return self._columns
        recent = self._recent.values()
        times = (_NEVER if txn.last_updated is None else txn.last_updated for txn in recent)
        added = (
            np.fromiter(self._recent, np.uint64, len(recent)),
            np.fromiter((txn.version for txn in recent), np.int64, len(recent)),
            np.fromiter(times, np.int64, len(recent)),
        )
        return _sorted(*map(np.concatenate, zip(self._columns, added, strict=True)))

    def lasting(self) -> Iterator[Txn]:
        """The txns that are never forgotten."""
        codes, versions, times = self._whole()
        lasting = times == _NEVER
        yield from (txn for txn in self._named.values() if txn.last_updated is None)
        for code, version in zip(codes[lasting].tolist(), versions[lasting].tolist(), strict=True):
            yield Txn(_name(code), version)

    def __getitem__(self, app_id: str) -> Txn:
        found = self._named.get(app_id)
        if found is not None:
            return found
        code = _code(app_id)
        packed = None if code is None else self._at(code)
        if packed is None:
            raise KeyError(app_id)
        return Txn(app_id, *packed)

    def __iter__(self) -> Iterator[str]:
        yield from self._named
        yield from map(_name, self._whole().codes.tolist())

    def __len__(self) -> int:
        return len(self._named) + len(self._whole().codes)

    def __repr__(self) -> str:
        return f"Txns({[*self.values()]})"


def _code(app_id: str) -> int | None:
    """The number of a producer's txn: twice its id, and one more at the end offset; None for another."""
    found = producer_of_txn(app_id)
    if found is None or found[0] > KEPT_PRODUCER_ID_MAX:
        return None
    return 2 * found[0] + (found[1] == "end")


def _name(code: int) -> str:
    """The `appId` of a producer's txn by its number."""
    return (producer_end_txn if code & 1 else producer_sequence_txn)(code >> 1)


def _sorted(codes: np.ndarray, versions: np.ndarray, times: np.ndarray) -> _Columns:
    """The columns in order of `codes`, which may be int64 bits; of equal ones the last."""
    codes = codes.view(np.uint64)
    order = codes.argsort(kind="stable")
    codes = codes[order]
    last = np.append(codes[1:] != codes[:-1], np.True_) if len(codes) else np.empty(0, bool)
    return _Columns(codes[last], versions[order][last], times[order][last])


def _arrow(values: np.ndarray, kind: pa.DataType) -> pa.Array:
    """`values` of 8 bytes each, without a copy."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])
