"""A mirror sets offsets through a gateway that lives, with the credential of its user."""

from pathlib import Path

import pytest

from jobs.mirror.groups import NewOffset
from lakelog.cli.mirror_gateway import GatewayOffsets
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.cluster import Cluster
from log_tables.errors import AuthenticationFailed, AuthorizationFailed, Conflict, Unreachable
from log_tables.store.store import open_store
from tests.kit.gateway import running_gateway
from tests.kit.mirrored import MIRROR, mirrored_topic
from tests.kit.secured import Secured, acl
from tests.kit.support import wait_until

TOPIC, GROUP, USER = "copied", "readers", "User:mirror"


def offset(at: int, before: int | None = None) -> list[NewOffset]:
    return [NewOffset(TOPIC, 0, at, "", before)]


def test_it_goes_to_a_gateway_that_lives(store_root: Path) -> None:
    cluster = Cluster.open(open_store(str(store_root)))
    mirrored_topic(cluster, TOPIC)
    with GatewayOffsets(cluster) as set_offsets:
        with pytest.raises(Unreachable, match="no gateway is listed on this root"):
            set_offsets(GROUP, MIRROR, offset(7))
        with running_gateway(store_root) as first:
            set_offsets(GROUP, MIRROR, offset(7))
            with running_gateway(store_root):
                first.kill()
                set_offsets(GROUP, MIRROR, offset(8, 7))
                with pytest.raises(Conflict, match="is 8, and not 7"):
                    set_offsets(GROUP, MIRROR, offset(9, 7))
        with pytest.raises(Unreachable, match=f"no gateway answers at {first.url}"):
            set_offsets(GROUP, MIRROR, offset(9, 8))
    with GatewayOffsets(cluster, first.url) as named, pytest.raises(Unreachable, match=first.url):
        named(GROUP, MIRROR, offset(9, 8))


def test_it_has_a_credential_that_may(store_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secured = Secured(store_root)
    mirrored_topic(secured.cluster, TOPIC)
    key = secured.key(USER)
    with running_gateway(store_root, authentication_methods="api-key"):
        with GatewayOffsets(secured.cluster) as nobody, pytest.raises(AuthenticationFailed):
            nobody(GROUP, MIRROR, offset(7))
        monkeypatch.setenv("LAKELOG_API_KEY", key)
        with GatewayOffsets(secured.cluster) as set_offsets:
            secured.allow(acl(USER, Operation.READ, ResourceType.TOPIC, TOPIC))
            with pytest.raises(AuthorizationFailed):
                set_offsets(GROUP, MIRROR, offset(7))
            secured.allow(acl(USER, Operation.READ, ResourceType.GROUP, GROUP))
            wait_until(lambda: is_set(set_offsets), "the gateway has seen the rule")


def is_set(set_offsets: GatewayOffsets) -> bool:
    try:
        set_offsets(GROUP, MIRROR, offset(7))
    except AuthorizationFailed:
        return False
    return True
