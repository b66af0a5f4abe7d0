"""The configurations of docs/security.md for a proxy in front, as real proxies run them.

A test is skipped where the program is not installed (`apt-get install caddy nginx-light`).
"""

import json
import os
import re
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec import structs

from log_tables.cluster.acl import Operation, ResourceType
from tests.kit.certificates import Authority, Pair
from tests.kit.gateway import NEVER_MS, start_gateway
from tests.kit.secured import Secured, acl, bearer
from tests.kit.support import ROOT, WAIT_S, free_port, listens, wait_until

NAME = "log.example.com"
JSON = {"Content-Type": "application/vnd.kafka.json.v2+json"}
ELSEWHERE = "10.1.2.3"
LONGER_THAN_DEFAULTS_MS = 70_000
"""nginx ends a request whose answer takes more than 60 s, unless it is told otherwise."""


def documented(language: str) -> str:
    """The one block of code in that language on the page."""
    page = (ROOT / "docs" / "security.md").read_text()
    found: list[str] = re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(found) == 1, language
    return found[0]


def replaced(text: str, *pairs: tuple[str, str]) -> str:
    """`text` with what differs on this machine; each is in it."""
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


def nginx_command(directory: Path, text: str) -> list[str]:
    """Command of nginx with a main file around `text`, which is one for conf.d."""
    paths = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{each}_temp_path {directory}/{each};" for each in paths)
    user = "user root;" if os.geteuid() == 0 else ""
    file = directory / "nginx.conf"
    file.write_text(
        f"{user} daemon off; pid {directory}/pid; error_log stderr; events {{}}\n"
        f"http {{ access_log off; {temporary}\n{text}\n}}\n"
    )
    return ["nginx", "-e", "stderr", "-p", str(directory), "-c", str(file)]


def caddy_command(directory: Path, text: str) -> list[str]:
    """Command of Caddy, with options that keep it away from other ports of this machine."""
    file = directory / "Caddyfile"
    file.write_text(f"{{\n\tadmin off\n\tauto_https disable_redirects\n}}\n{text}")
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(file)]


@dataclass
class Proxied:
    """A gateway behind a proxy."""

    root: Secured
    key: str
    client: httpx.Client

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """The answer through the proxy, by its own name; with the key of a super user, if not another."""
        headers = {"Host": NAME, **bearer(self.key), **more.pop("headers", {})}
        return self.client.request(method, path, headers=headers, extensions={"sni_hostname": NAME}, **more)

    def create(self, topic: str) -> str:
        assert self.ask("POST", "/topics", json={"topic_name": topic}).status_code == 201
        return f"/topics/{topic}"


@pytest.fixture(scope="module", params=["nginx", "caddy"])
def proxied(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    directory = tmp_path_factory.mktemp(request.param)
    authority, root = Authority(directory), Secured(tmp_path_factory.mktemp("root"))
    pair, key = authority.pair("proxy", host=NAME), root.key()
    settings = {
        "authentication_methods": "api-key",
        "advertised_url": f"https://{NAME}",
        "leader_timeout_ms": NEVER_MS,
    }
    port = free_port()
    gateway = start_gateway(root.cluster.store.url, "--port", str(port), **settings)
    try:
        with (
            running_proxy(request.param, directory, pair, f"127.0.0.1:{port}") as url,
            httpx.Client(base_url=url, verify=authority.trusted(), timeout=WAIT_S) as client,
        ):
            yield Proxied(root, key, client)
    finally:
        gateway.stop()


@contextmanager
def running_proxy(program: str, directory: Path, pair: Pair, upstream: str) -> Iterator[str]:
    """The proxy with its documented file, before the gateway at the address `upstream`; gives its URL."""
    port = free_port()
    own = [
        ("127.0.0.1:8082", upstream),
        ("/etc/lakelog/tls.crt", pair.certfile),
        ("/etc/lakelog/tls.key", pair.keyfile),
    ]
    if program == "nginx":
        listening = ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl")
        command = nginx_command(directory, replaced(documented("nginx"), *own, listening))
        check = [*command, "-t"]
    else:
        listening = (f"{NAME} {{", f"{NAME}:{port} {{\n\tbind 127.0.0.1")
        command = caddy_command(directory, replaced(documented("caddyfile"), *own, listening))
        check = ["caddy", "validate", *command[2:]]
    environment = {**os.environ, "XDG_DATA_HOME": str(directory), "XDG_CONFIG_HOME": str(directory)}
    valid = subprocess.run(check, check=False, env=environment, capture_output=True, text=True)
    assert valid.returncode == 0, valid.stderr
    with (
        (directory / "log").open("w") as log,
        subprocess.Popen(command, env=environment, stderr=log) as process,
    ):
        try:
            wait_until(lambda: listens(port) or process.poll() is not None, f"{program} listens")
            assert process.poll() is None, (directory / "log").read_text()
            yield f"https://127.0.0.1:{port}"
        finally:
            process.terminate()


def test_credentials_pass_and_a_missing_one_is_answered_by_the_gateway(proxied: Proxied) -> None:
    answer = proxied.ask("GET", "/topics", headers={"Authorization": ""})
    assert answer.status_code == 401
    assert "Bearer" in answer.headers["WWW-Authenticate"]
    assert proxied.ask("GET", "/topics").status_code == 200
    basic = b64encode(proxied.key.replace(".", ":").encode()).decode()
    assert proxied.ask("GET", "/topics", headers={"Authorization": f"Basic {basic}"}).status_code == 200


def test_links_have_the_name_of_the_proxy(proxied: Proxied) -> None:
    (cluster,) = proxied.ask("GET", "/v3/clusters").json()["data"]
    assert cluster["metadata"]["self"].startswith(f"https://{NAME}/v3/")


def test_large_bodies_pass_both_ways_with_a_length_and_in_chunks(proxied: Proxied) -> None:
    topic, value = proxied.create("large"), "x" * 1_000_000
    body = json.dumps({"records": [{"value": value}] * 20}).encode()
    pieces = (body[begin : begin + 65_536] for begin in range(0, len(body), 65_536))
    for content in (body, pieces):
        answer = proxied.ask("POST", topic, content=content, headers=JSON)
        assert answer.status_code == 200, answer.text
    read: list[str] = []
    while len(read) < 40:
        found = proxied.ask("GET", f"{topic}/partitions/0/records?offset={len(read)}").json()
        read += [record["value"] for record in found]
    assert read == [value] * 40


@pytest.mark.parametrize("wait_ms", [1_000, pytest.param(LONGER_THAN_DEFAULTS_MS, marks=pytest.mark.torture)])
def test_a_long_poll_is_answered_when_a_record_comes_or_its_time_is_over(
    proxied: Proxied, wait_ms: int
) -> None:
    topic = proxied.create(f"polled-{wait_ms}")
    path = f"{topic}/partitions/0/records?offset=0&timeout="
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(proxied.ask, "GET", f"{path}{2 * LONGER_THAN_DEFAULTS_MS}")
        nothing = proxied.ask("GET", f"{path}{wait_ms}")
        assert (nothing.status_code, nothing.json()) == (200, [])
        produced = proxied.ask("POST", topic, json={"records": [{"value": 1}]}, headers=JSON)
        assert produced.status_code == 200
        assert [record["value"] for record in waiting.result().json()] == [1]


def test_what_gateways_ask_of_one_another_ends_at_the_proxy(proxied: Proxied) -> None:
    for path in ("/peer/", "/peer/anything", "/%70eer/anything"):
        answer = proxied.ask("GET", path)
        assert (answer.status_code, "error_code" in answer.text) == (404, False), path


def test_the_host_of_an_acl_is_the_proxy_and_no_header_changes_that(proxied: Proxied) -> None:
    topic, ann = proxied.create("hosted"), proxied.root.key("User:ann")
    record = acl("User:ann", Operation.WRITE, ResourceType.TOPIC, "hosted")
    proxied.root.allow(structs.replace(record, host=ELSEWHERE))
    forged = {**JSON, **bearer(ann), "X-Forwarded-For": ELSEWHERE, "Forwarded": f"for={ELSEWHERE}"}

    def status() -> int:
        body = {"records": [{"value": 1}]}
        return proxied.ask("POST", topic, json=body, headers=forged).status_code

    wait_until(lambda: status() != 401, "the gateway knows the key")
    assert status() == 403
    proxied.root.allow(structs.replace(record, host="127.0.0.1"))
    wait_until(lambda: status() == 200, "the gateway knows the ACL")
