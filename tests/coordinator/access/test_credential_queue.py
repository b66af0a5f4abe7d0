"""Credentials that wait to be verified, while others go on."""

import asyncio
import base64
import threading

import pytest

from coordinator.access.access import CredentialQueue
from coordinator.access.authentication.api_key import new_api_key
from coordinator.access.authentication.authenticator import Authenticator
from coordinator.access.authentication.certificate import PrincipalMappingRules
from coordinator.access.authentication.jwt_verifier import Jwks, JwtVerifier, OidcSettings
from coordinator.access.authentication.scram import ITERATIONS_MIN, new_scram_user
from coordinator.access.principal import Principal
from log_tables.clock import ManualClock
from log_tables.cluster.credential import AuthenticationMethod
from log_tables.errors import AuthenticationFailed, QuotaReached
from tests.kit.oidc import AUDIENCE, ISSUER, Provider
from tests.kit.support import WAIT_S

HERE = "192.0.2.1"


class Slow:
    """A provider that answers when it is told to; an authenticator that knows a key, a user and tokens."""

    def __init__(self, clock: ManualClock) -> None:
        self.provider = Provider(clock)
        self.asked, self.answer = threading.Event(), threading.Event()
        text, key = new_api_key("User:ann", clock)
        user = new_scram_user("bob", "a secret", clock, ITERATIONS_MIN)
        tokens = JwtVerifier(OidcSettings(ISSUER, AUDIENCE), Jwks(self._fetch, clock), clock)
        self.key, self.user = f"Bearer {text}".encode(), b"Basic " + base64.b64encode(b"bob:a secret")
        self.by = Authenticator(
            list(AuthenticationMethod), {key.id: key}, {"bob": user}, tokens, PrincipalMappingRules(), clock
        )

    def token(self) -> bytes:
        return b"Bearer " + self.provider.token(sub="cid")

    def _fetch(self) -> bytes:
        self.asked.set()
        assert self.answer.wait(WAIT_S)
        return self.provider.fetch()


def test_what_waits_holds_up_nobody_else_and_is_bounded(clock: ManualClock) -> None:
    slow = Slow(clock)

    async def scenario() -> None:
        queue = CredentialQueue(slow.by, waiting_max=1)
        waiting = asyncio.create_task(queue.verify(slow.token(), None, HERE))
        assert await asyncio.to_thread(slow.asked.wait, WAIT_S)
        assert await queue.verify(slow.key, None, HERE) == Principal("User:ann")
        with pytest.raises(AuthenticationFailed):
            await queue.verify(slow.key + b"x", None, HERE)
        with pytest.raises(AuthenticationFailed):
            await queue.verify(None, None, HERE)
        with pytest.raises(QuotaReached, match="too many credentials wait"):
            await queue.verify(slow.user, None, HERE)
        slow.answer.set()
        assert await waiting == Principal("User:cid")
        assert await queue.verify(slow.user, None, HERE) == Principal("User:bob")

    asyncio.run(scenario())


def test_a_client_that_goes_away_leaves_its_place(clock: ManualClock) -> None:
    slow = Slow(clock)

    async def scenario() -> None:
        queue = CredentialQueue(slow.by, waiting_max=1)
        waiting = asyncio.create_task(queue.verify(slow.token(), None, HERE))
        assert await asyncio.to_thread(slow.asked.wait, WAIT_S)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await queue.verify(slow.user, None, HERE) == Principal("User:bob")
        slow.answer.set()

    asyncio.run(scenario())
