"""A gateway that authenticates and authorises its clients, next to an open one."""

from pathlib import Path

from bench import load
from bench.cells import Figures, body_file, scratch
from bench.contest import OURS, Results, Scale
from bench.gateway import Gateway
from bench.peers import Peers
from coordinator.access.authentication.api_key import new_api_key
from log_tables.cluster.access_record import acl_record
from log_tables.cluster.acl import ANY, Acl, Operation, PatternType, Permission, ResourceType
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.credential_log import api_key_record, create_credentials
from log_tables.store.store import open_store

_PARTITIONS, _BODY_RECORDS, _CONNECTIONS = 4, 500, 16
_USER = "User:bench"
_FETCH_BYTES = 16_384
_FAST = ("--set", "linger_ms=0", "--set", "commits_per_second_max=0")
_SECURED = ("--set", "authentication_methods=api-key,scram")


def secured(_peers: Peers | None, scale: Scale) -> Results:
    """An API key with ACLs by prefix, and nobody asked: large requests, one record, small fetches."""
    return {OURS: _figures(scale.seconds, True), "open": _figures(scale.seconds, False)}


def _figures(seconds: int, secured: bool) -> Figures:
    with scratch() as directory:
        root, options = directory / "data", _SECURED if secured else ()
        with Gateway(root) as gateway:
            gateway.create_topic("bench", _PARTITIONS)
            gateway.create_topic("bench-lone", 1)
        sent = f"Bearer {_key(root)}" if secured else ""
        figures = {}
        with Gateway(root, *options) as gateway:
            url, body = f"{gateway.url}/topics/bench", body_file(directory, load.json_body(_BODY_RECORDS))
            load.post(url, body, load.JSON, _CONNECTIONS, 1, authorization=sent)
            measured = load.post(url, body, load.JSON, _CONNECTIONS, seconds, authorization=sent)
            figures["records/s"] = measured.requests * _BODY_RECORDS / measured.seconds
            page = f"{gateway.url}/topics/bench/partitions/0/records?offset=0&max_bytes={_FETCH_BYTES}"
            load.post(page, None, load.JSON, _CONNECTIONS, 1, authorization=sent)
            fetched = load.post(page, None, load.JSON, _CONNECTIONS, seconds, authorization=sent)
            figures["fetches/s"] = fetched.requests / fetched.seconds
        with Gateway(root, *options, *_FAST) as gateway:
            url, body = f"{gateway.url}/topics/bench-lone", body_file(directory, load.json_body(1))
            load.post(url, body, load.JSON, 1, 1, authorization=sent)
            figures["lone p50 ms"] = load.post(url, body, load.JSON, 1, seconds, authorization=sent).p50_ms
        return figures


def _key(root: Path) -> str:
    """A key of a user who may read and write by a prefix."""
    cluster = Cluster.open(open_store(str(root)))
    text, key = new_api_key(_USER, cluster.clock)
    create_credentials(cluster.store, cluster.clock, "").change(lambda _: [api_key_record(key)])
    acls = [
        Acl(ResourceType.TOPIC, "ben", PatternType.PREFIXED, _USER, ANY, operation, Permission.ALLOW)
        for operation in (Operation.READ, Operation.WRITE)
    ]
    cluster.metadata_log.change_access(lambda _: [acl_record(acl) for acl in acls])
    return text
