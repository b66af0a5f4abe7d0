"""Topic settings of Kafka's that lakelog has no use for, and that Kafka's clients send all the same.

They are taken from Kafka's clients, kept, shown, and without effect. One that promises something about
records is taken with the one value that says what lakelog does.
"""

from log_tables.cluster.setting import ReplicaList, Setting
from log_tables.limits import MIB

_INT_MAX, _LONG_MAX = 2**31 - 1, 2**63 - 1
_TRUTHS = ("false", "true")


def _number(name: str, default: int, meaning: str, low: int, high: int = _LONG_MAX) -> Setting:
    return Setting(name, str(default), meaning, low=low, high=high)


def _only(name: str, value: str | int, meaning: str) -> Setting:
    return Setting(name, str(value), meaning, choices=(str(value),))


WITHOUT_EFFECT = {
    setting.name: setting
    for setting in (
        _number("min.insync.replicas", 1, "The store keeps the copies.", 1, _INT_MAX),
        Setting(
            "unclean.leader.election.enable", "false", "A leader never lacks what was acknowledged.", _TRUTHS
        ),
        _number("flush.messages", _LONG_MAX, "Records that are acknowledged with acks=all are durable.", 1),
        _number("flush.ms", _LONG_MAX, "Records that are acknowledged with acks=all are durable.", 0),
        _number("index.interval.bytes", 4096, "Segments are Parquet files.", 0, _INT_MAX),
        _number("segment.index.bytes", 10 * MIB, "Segments are Parquet files.", 4, _INT_MAX),
        _number("segment.jitter.ms", 0, "Segments end with their commits.", 0),
        Setting("preallocate", "false", "Segments are Parquet files.", _TRUTHS),
        _number("compression.gzip.level", -1, "Segments have the usual level.", -1, 9),
        _number("compression.lz4.level", 9, "Segments have the usual level.", 1, 17),
        _number("compression.zstd.level", 3, "Segments have the usual level.", -131_072, 22),
        ReplicaList("leader.replication.throttled.replicas", "", "The store keeps the copies."),
        ReplicaList("follower.replication.throttled.replicas", "", "The store keeps the copies."),
        _only("max.compaction.lag.ms", _LONG_MAX, "Compaction by key has no deadline."),
        _only("remote.log.copy.disable", "false", "See remote.storage.enable."),
        _only(
            "remote.log.delete.on.disable", "false", "Segments that have moved to the remote root stay there."
        ),
    )
}
"""By name. The defaults are Kafka's."""
