"""The plan of a run: its clients, faults and all else, drawn from its seed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.kit.clients import Task
from tests.kit.history import At
from tests.simulation.chance import Chance
from tests.simulation.faults import BUCKET, OF_BUCKET, OF_DISK, PROFILES, Fault, Kind, drawn

TOPIC, COPY = "flights", "copies"
PARTITIONS = 2

SCENES = ("truncated", "grown", "phoenix", "keyed", "typed", "once", "expired", "tiered", "reset")
"""The topics of scenes."""

MAINTAINED = frozenset({"expired", "tiered"})
"""The topics that jobs change."""

DAY_H = 24.0

NIGHTS_H = (1.1, 2.0, 7.0, 11.0, 30.0)
"""Leaders are stale after the first, and after the last a vacuum deletes what was put before."""

NAP_H = 2.5
"""What is put before it may be committed after it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a run: drawn from its seed, but for what is left out of it."""

    seed: int
    steps: int = 2_000
    gateways: int = 2
    ordered: bool = True
    delay_s: float = 0.01
    tasks: tuple[Task, ...] = ()
    faults: tuple[Fault, ...] = ()
    profile: str = ""
    is_chosen: bool = False
    maintainers: tuple[float, ...] = ()
    """How often each scheduler of jobs runs them, in seconds."""
    configs: Mapping[str, str] = field(default_factory=dict)
    """The settings of the topics."""
    nights: tuple[float, ...] = ()
    """Hours in which nobody runs, one after the other, when the faults are over."""
    scenes: tuple[str, ...] = ()
    copies: bool = False
    """Whether the root is copied."""
    secured: bool = False
    """Whether security is switched on."""
    naps: bool = False
    """Whether all sleep once more while a job has put files after a night, and not committed them; besides,
    somebody runs housekeeping alone.
    """
    bucket: bool = False
    """Whether the root is a bucket, and not a directory."""

    @staticmethod
    def of(seed: int, steps: int = 2_000, profile: str = "") -> "Plan":
        """The plan of a seed, with faults of a profile; "": of one that is drawn, or of any."""
        chance = Chance(f"plan {seed}")
        name = profile or chance.choice([*(each for each in PROFILES if each != BUCKET), "any", "any"])
        bucket = _is_bucket(seed, name)
        others = OF_DISK if bucket else OF_BUCKET
        kinds = [kind for kind in ([*Kind] if name == "any" else PROFILES[name]) if kind not in others]
        gateways = chance.randint(1, 3)
        ordered, delay_s = chance.random() < 0.7, chance.choice((0.002, 0.02, 0.1))
        tasks, faults = tuple(_tasks(chance)), drawn(chance, kinds, steps, gateways)
        secured = Chance(f"security {seed}").random() < 0.1
        scenes = _scenes(seed, faults, secured)
        more = Chance(f"actors {seed}")
        every = tuple(more.choice((0.2, 0.5, 1.0)) for _ in range(more.choice((0, 0, 0, 1, 2))))
        every = every or ((1.0,) if name == "jobs" or not MAINTAINED.isdisjoint(scenes) else ())
        configs = _configs(more)
        nights = _nights(more, tasks)
        return Plan(
            seed,
            steps,
            gateways,
            ordered,
            delay_s,
            tasks,
            faults,
            name,
            bool(profile),
            every,
            configs,
            nights,
            scenes,
            more.random() < 0.2,
            secured,
            bool(every and nights) and more.random() < 0.5,
            bucket,
        )


def _scenes(seed: int, faults: Sequence[Fault], secured: bool) -> tuple[str, ...]:
    """The scenes of a run: three in four runs have one, but one more or less."""
    chance = Chance(f"scenes {seed}")
    found = chance.sample(SCENES, chance.choice((0, 0, 1, 1, 1, 2)))
    if secured or any(fault.kind in (Kind.HOURS, Kind.JUMP) for fault in faults):
        # A key counts for one principal, and may be forgotten while it is repeated.
        found = [name for name in found if name != "once"]
    return tuple(found)


def _nights(chance: Chance, tasks: Sequence[Task]) -> tuple[float, ...]:
    """The hours of each night. Whoever copies may sleep before it sends a transaction again, by a key that is
    forgotten after a day.
    """
    most = max(NIGHTS_H) if all(task.kind != "copy" for task in tasks) else DAY_H / 2
    usable = [hours for hours in NIGHTS_H if hours <= most]
    return tuple(chance.choice(usable) for _ in range(chance.choice((0, 0, 0, 0, 2, 4))))


def _is_bucket(seed: int, profile: str) -> bool:
    """Whether the root is a bucket: one in three is. A cut of the power takes nothing from one."""
    return profile == BUCKET or (profile != "power" and Chance(f"stores {seed}").random() < 1 / 3)


def _configs(chance: Chance) -> dict[str, str]:
    """Settings of topics with which there is something to do for jobs."""
    found = {"producer.id.expiration.ms": str(10 * 24 * 3_600_000)}
    if chance.random() < 0.7:
        found["merge.min.age.ms"] = "0"
    if chance.random() < 0.5:
        found["segment.bytes"] = chance.choice(("8192", "65536"))
    return found


def _tasks(chance: Chance) -> Iterator[Task]:
    """The clients of a run."""
    here, there = At(TOPIC, 0), At(TOPIC, 1)
    kinds = [
        Task("produce", "idempotent", here),
        Task("produce", "idempotent too", there),
        Task("produce plainly", "plain", here),
        Task("fetch", "fetcher", here),
        Task("read", "member", here, "readers"),
        Task("read", "another member", here, "readers"),
        Task("copy", "copier", here, "copiers", (At(COPY, 0), At(COPY, 1))),
        Task("copy", "another copier", here, "copiers", (At(COPY, 0), At(COPY, 1))),
        Task("kafka produce", "kafka producer", there),
        Task("kafka read", "kafka member", here, "readers"),
        Task("kafka read", "another kafka member", here, "kafka readers"),
        Task("kafka read", "a third kafka member", here, "kafka readers"),
    ]
    yield kinds[0]
    yield from (task for task in kinds[1:] if chance.random() < 0.5)
