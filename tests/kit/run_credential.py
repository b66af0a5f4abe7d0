"""The credential of a run with --secured, in which every gateway authenticates its clients.

It is a super user's, and every request of httpx to a gateway has it, unless the request has one of its own or
the test has set up the gateway's authentication by itself. Requests that a test writes as bytes take it from
`credential_line`.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from coordinator.access.authentication.api_key import new_api_key
from log_tables.clock import SystemClock
from log_tables.cluster.access_record import security_record, super_user_record
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.credential_log import api_key_record, create_credentials
from log_tables.store.store import open_store

PRINCIPAL = "User:admin"
VARIABLE = "LAKELOG_API_KEY"

_KEY, _RECORD = new_api_key(PRINCIPAL, SystemClock())
_SECURED = False
_OTHERS = set[int]()
"""Ports of gateways whose authentication is a test's own."""


def settings_of(data: str | Path, store_options: object = "{}") -> dict[str, Any]:
    """Settings for a gateway of the root at `data`, by the mode of this run. In a secured run the root then
    knows the run's credential.

    `store_options` is JSON, as a setting is. Nothing is audited: audit events are appended by themselves, and
    tests count the records that a gateway holds.
    """
    if not _SECURED:
        return {}
    cluster = Cluster.open(open_store(str(data), json.loads(str(store_options))))
    log = create_credentials(cluster.store, cluster.clock, "")
    if _RECORD.id not in log.credentials.api_keys:
        cluster.metadata_log.change_access(lambda _: [super_user_record(PRINCIPAL), security_record(True)])
        log.change(lambda _: [api_key_record(_RECORD)])
    return {"authentication_methods": "api-key", "audit_enable": "false"}


def note_gateway(url: str, own: bool) -> None:
    """A gateway is at `url`. Has it an authentication of its test's `own`, requests are left alone."""
    port = httpx.URL(url).port
    if port is None:  # it is advertised by another name
        return
    (_OTHERS.add if own else _OTHERS.discard)(port)


def begin() -> None:
    """Secure the run from now on. Call it before any module of tests is loaded."""
    global _SECURED  # noqa: PLW0603 -- what a run is does not change
    _SECURED = True


def is_secured() -> bool:
    """Whether this run authenticates clients."""
    return _SECURED


def credential_headers() -> dict[str, str]:
    """The headers of the super user in a secured run; none otherwise."""
    return {"Authorization": f"Bearer {_KEY}"} if _SECURED else {}


def credential_line() -> str:
    """The header as it stands in a head, with its end."""
    return "".join(f"{name}: {value}\r\n" for name, value in credential_headers().items())


def inherited_headers() -> dict[str, str]:
    """The headers of the super user in a process that a test has started; none if nothing is secured."""
    return {"Authorization": f"Bearer {os.environ[VARIABLE]}"} if VARIABLE in os.environ else {}


@contextmanager
def with_credential() -> Iterator[None]:
    """Until the end all requests have the credential, and commands that are run find it."""
    plain, awaited = httpx.HTTPTransport.handle_request, httpx.AsyncHTTPTransport.handle_async_request

    def handle(transport: Any, request: httpx.Request) -> httpx.Response:
        return plain(transport, _with_credential(request))

    async def handle_async(transport: Any, request: httpx.Request) -> httpx.Response:
        return await awaited(transport, _with_credential(request))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpx.HTTPTransport, "handle_request", handle)
        patch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", handle_async)
        patch.setenv(VARIABLE, _KEY)
        yield


def _with_credential(request: httpx.Request) -> httpx.Request:
    if request.url.port not in _OTHERS and "authorization" not in request.headers:
        request.headers.update(credential_headers())
    return request
