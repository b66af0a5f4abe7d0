"""A gateway that takes tokens of an OIDC provider: the provider is a real HTTP server."""

from pathlib import Path

import pytest

from api.process.credential_duty import jwt_verifier_of
from ingest.settings import Settings
from log_tables.clock import ManualClock, SystemClock
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.errors import InvalidConfig
from tests.kit.gateway import running_gateway
from tests.kit.oidc_server import AUDIENCE, ISSUER, provider
from tests.kit.secured import Secured, acl, bearer, error_code
from tests.kit.support import wait_until


def settings(url: str, **more: object) -> Settings:
    named = {"oidc_issuer": ISSUER, "oidc_audience": AUDIENCE, "oidc_jwks_url": url, **more}
    return Settings.model_validate({"authentication_methods": ["oidc"], **named})


def test_a_token_is_a_principal_with_groups_that_acls_name(tmp_path: Path, process: None) -> None:
    root, now_s = Secured(tmp_path), SystemClock().now_ms() // 1_000
    root.allow(acl("Group:writers", Operation.CREATE, ResourceType.CLUSTER))
    with (
        provider() as idp,
        running_gateway(tmp_path, **idp.settings) as gateway,
    ):

        def create(token: str) -> int:
            body = {"topic_name": f"t{SystemClock().unique_id()}"}
            return error_code(gateway.client.post("/topics", json=body, headers=bearer(token)))

        wait_until(lambda: create(idp.token(groups=["writers"])) == 0, "the provider's keys are there")
        assert create(idp.token(groups=["readers"])) == 40301
        assert create(idp.token(aud="other", groups=["writers"])) == 40101
        assert create(idp.token(exp=now_s - 3_600, groups=["writers"])) == 40101


@pytest.mark.parametrize("url", ["", "http://idp.example/jwks", "ftp://127.0.0.1x/jwks"])
def test_keys_come_from_where_nobody_can_change_them(url: str) -> None:
    with pytest.raises(InvalidConfig, match="oidc_jwks_url"):
        jwt_verifier_of(settings(url), ManualClock())


def test_a_redirect_brings_no_keys() -> None:
    with provider() as idp:
        clock = SystemClock()
        at, moved = (jwt_verifier_of(settings(f"{idp.url}/{path}"), clock) for path in ("jwks", "moved"))
        assert at is not None
        assert moved is not None
        at.jwks.refresh()
        moved.jwks.refresh()
        assert len(at.jwks.keys) == 1
        assert moved.jwks.keys == ()
