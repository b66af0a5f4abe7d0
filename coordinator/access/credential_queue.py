"""Credentials that wait to be verified: in threads of their own, so that wrong ones delay nobody else."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from coordinator.access.authenticator import Authenticator
from coordinator.access.principal import Principal
from log_tables.errors import QuotaReached

THREADS = 4
"""A password takes milliseconds; a fetch of the provider's keys may take seconds, and one thread."""

WAITING_MAX = 256
"""About a second of passwords."""


class CredentialQueue:
    """For one event loop."""

    def __init__(self, authenticator: Authenticator, waiting_max: int = WAITING_MAX) -> None:
        self._authenticator, self._waiting_max = authenticator, waiting_max
        self._threads, self._waiting = ThreadPoolExecutor(THREADS, "lakelog-credential"), 0

    async def verify(self, header: bytes | None, subject: str | None, address: str) -> Principal:
        """As `Authenticator.verify`, at once if that is fast. Raises QuotaReached if too many wait, too."""
        if not self._authenticator.is_slow(header):
            return self._authenticator.verify(header, subject, address)
        if self._waiting >= self._waiting_max:
            raise QuotaReached("too many credentials wait to be checked; repeat the request")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, self._authenticator.verify, header, subject, address
            )
        finally:
            self._waiting -= 1
