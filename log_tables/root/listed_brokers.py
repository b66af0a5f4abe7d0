"""The gateways on the list of a root: whether one runs on this very root, and how to clear the list."""

from collections.abc import Collection

from log_tables.cluster.cluster import Cluster
from log_tables.cluster.metadata_log import BrokerRecord
from log_tables.errors import ObjectMissing
from log_tables.layout import broker_path
from log_tables.limits import SIGN_LOOKS

_VISITOR = "lakelog-root-visitor"


def find_living(
    cluster: Cluster, wait_s: float, signs: int = 1, among: Collection[int] | None = None
) -> BrokerRecord | None:
    """A listed gateway, one `among` these if they are given, that gives `signs` new signs of life within
    `wait_s` seconds; None without one.

    A gateway that is alone on the list gives none, so this process registers too, as one that is leaving.
    """
    log = cluster.metadata_log
    listed = [record for record in log.brokers.values() if among is None or record.id in among]
    if not listed:
        return None
    visitor = log.register_broker(_VISITOR, leaving=True)
    try:
        last = {record.id: _sign(cluster, record) for record in listed}
        given = dict.fromkeys(last, 0)
        for _ in range(SIGN_LOOKS):
            cluster.clock.pause(wait_s / SIGN_LOOKS)
            for record in listed:
                sign = _sign(cluster, record)
                given[record.id] += sign not in ("", last[record.id])
                last[record.id] = sign
                if given[record.id] >= signs:
                    return record
    finally:
        log.remove_broker(visitor)
    return None


def _sign(cluster: Cluster, record: BrokerRecord) -> str:
    try:
        return cluster.store.get(broker_path(record.id)).decode(errors="replace")
    except ObjectMissing:
        return ""


def strike_off(cluster: Cluster) -> None:
    """Remove all gateways, with their signs of life, from the list of `cluster`: none runs on this root."""
    for record in [*cluster.metadata_log.brokers.values()]:
        cluster.metadata_log.remove_broker(record)
        cluster.store.delete(broker_path(record.id))
