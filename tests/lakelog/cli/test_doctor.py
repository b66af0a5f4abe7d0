"""`lakelog doctor`: what it finds, and what a bundle has and has not."""

import json
import threading
from collections.abc import Callable
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from lakelog.cli.commands.doctor import LOG_BYTES, texts_of, without_secrets
from lakelog.cli.diagnosis import State, of_gateway, of_root
from lakelog.client.client import Client
from lakelog.client.security_config import Credential
from log_tables.clock import ManualClock, SystemClock
from log_tables.store.store import open_store
from tests.kit.cli import FAILED, USAGE, Run, lines, printed, wrong
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.secured import Secured
from tests.kit.support import free_port

CANARY = "canary-90d1"


def test_what_is_no_gateway_is_told(run: Run) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            said = run("doctor", "--url", f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            thread.join()
    assert said.exit_code == FAILED
    assert "FAIL  version: the answer is none of a lakelog gateway" in said.stdout


def test_all_is_well(run: Run, gateway: RunningGateway, root: Path) -> None:
    told = lines(run("doctor", "--data", str(root)))
    assert told[0] == f"PASS  gateway: {gateway.url} answers"
    assert [line for line in told if line.startswith("PASS  root: ")] == [f"PASS  root: {root}, 1 topic"]
    assert told[-1] == "no check failed"
    found = printed(run("doctor", "--data", str(root), "--json"))
    assert found["failed"] == 0
    checks = [
        "gateway",
        "encryption",
        "version",
        "clock",
        "root of the gateway",
        "rights",
        "gateways",
        "root",
    ]
    assert [each["check"] for each in found["findings"]] == [*checks, "disk"]


def test_a_gateway_that_is_away_fails_and_the_root_is_looked_at(run: Run, root: Path) -> None:
    done = run("doctor", "--url", f"http://127.0.0.1:{free_port()}", "--data", str(root))
    assert done.exit_code == FAILED
    first, advice, *_, last = done.stdout.splitlines()
    assert first.startswith("FAIL  gateway: no gateway answers")
    assert advice == "      start it, or name another with --url"
    assert f"PASS  root: {root}, 1 topic" in done.stdout
    assert last == "1 check failed"


def test_a_root_that_is_not_here_is_left_out(tmp_path: Path) -> None:
    (found,) = of_root(lambda: open_store(str(tmp_path / "none"), {}, create=False))
    assert (found.check, found.state) == ("root", State.SKIP)
    assert "--data" in found.advice


def test_a_clock_that_is_wrong_is_found(gateway: RunningGateway) -> None:
    with Client(gateway.url) as client:
        (clock,) = (each for each in of_gateway(client, ManualClock()) if each.check == "clock")
    assert clock.state is State.WARN
    assert "NTP" in clock.advice


def test_rights_are_said(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    nobody, admin = secured.key("User:nobody"), secured.key()
    with running_gateway(tmp_path, authentication_methods="api-key") as gateway:

        def states(key: str | None) -> dict[str, State]:
            credential = None if key is None else Credential.api_key(key)
            with Client(gateway.url, credential=credential) as client:
                return {each.check: each.state for each in of_gateway(client, SystemClock())}

        assert set(states(admin).values()) == {State.PASS}
        assert states(nobody)["rights"] is states(nobody)["gateways"] is State.WARN
        assert State.FAIL in states(None).values()


def test_a_bundle_has_what_helps_and_no_secret(
    run: Run, gateway: RunningGateway, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKELOG_PEER_SECRET", CANARY)
    monkeypatch.setenv("LAKELOG_ADVERTISED_URL", f"https://me:{CANARY}@example.com")
    log, bundle = tmp_path / "gateway.log", tmp_path / "b.zip"
    log.write_text("the end\n")
    with Client(gateway.url) as client:  # whoever names a group so
        client.create_topic("seen")
        client.set_offsets(f"token={CANARY}", {("seen", 0): 0})
    words = ("doctor", "--data", str(root), "--bundle", str(bundle), "--log", str(log), "--fsck")
    assert f"wrote {bundle}" in run(*words).stdout
    with ZipFile(bundle) as packed:
        files = {name: packed.read(name) for name in packed.namelist()}
    fsck = json.loads(files["fsck.json"])
    assert fsck.get("sound"), fsck
    assert b"lakelog_" in files["metrics.txt"]
    assert files["gateway.log"] == b"the end\n"
    assert b"token=(hidden)" in files["groups.json"]
    assert json.loads(files["settings.json"])["variables"]["LAKELOG_PEER_SECRET"] == "(hidden)"
    assert not [name for name, content in files.items() if CANARY.encode() in content]
    assert "is there already" in run(*words).stderr
    wrong(run("doctor", "--fsck"), USAGE, "--bundle")


SECRETS = (
    f"Authorization: Bearer {CANARY}",
    f"authorization: Basic bWU6{CANARY}",
    f"reading s3://me:{CANARY}@host/bucket",
    f"aws_secret_access_key={CANARY} region=eu",
    f"started with password = '{CANARY} with blanks'",
    f'{{"message": "store_options: {{\\"secret_key\\": \\"{CANARY}\\"}}"}}',
    f'{{"peer_secret": "{CANARY}", "broker": 1}}',
    f"GET /b/o?X-Amz-Signature={CANARY}&X-Amz-Credential={CANARY}&partNumber=1",
    f"https://a.blob.core.windows.net/c/o?sv=2026&sig={CANARY}",
    f"-----BEGIN EC PRIVATE KEY-----\n{CANARY}\n-----END EC PRIVATE KEY-----",
    f"Login(name='ann', password=b'{CANARY}', token=SecretStr('{CANARY}'))",
    f'{{"password": "a \\"{CANARY}\\" b"}}',
    f"password = 'it\\'s {CANARY}'",
    f"secret='{CANARY}",
    f"lakelog user create ann --password {CANARY}",
    f"the passphrase={CANARY}, the pwd: {CANARY}",
    f"Cookie: a=b; lakelog={CANARY}",
    f"Proxy-Authorization: Digest username=me, response={CANARY}",
    f"reading https://me:at@{CANARY}@host/bucket",
    "0123456789ab.abcdefghijklmnopqrstuvwxyz-012345678_canary",  # an API key
    "eyJhbGciOiJub25lIn0.eyJjYW5hcnkiOjF9.canary",
    "the key AKIACANARYCANARY1234 is unknown",
    "hush-4711 stands here as it is",
)
PLAIN = (
    "2026-11-27 10:00:00,000 INFO api.process.server: broker 1 leads 3 partitions",
    '{"level": "WARNING", "message": "the credential is not right", "request_id": "a1"}',
    "GET /topics/orders/partitions/0/records?offset=1 200 3 ms",
)


def test_the_log_of_a_bundle_has_no_secret(
    run: Run, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-4711")
    log, bundle = tmp_path / "gateway.log", tmp_path / "b.zip"
    cut = "MIIEpAIBAAKCAQEAcanary\ncanary+/w==\n-----END RSA PRIVATE KEY-----"
    log.write_text("\n".join([cut, *SECRETS, *PLAIN, ""]))
    run("doctor", "--data", str(root), "--bundle", str(bundle), "--log", str(log))
    with ZipFile(bundle) as packed:
        kept = packed.read("gateway.log").decode()
    found = [secret for secret in (CANARY, "canary", "CANARY", "hush-4711") if secret in kept]
    assert not found, kept
    assert kept.splitlines()[-len(PLAIN) :] == [*PLAIN]
    assert "region=eu" in kept
    assert "partNumber=1" in kept


NESTED: tuple[Callable[[str], Any], ...] = (
    lambda text: text,
    lambda text: {"message": text},
    lambda text: {text: 1},
    lambda text: [{"found": {"deep": ("a", text)}}],
    lambda text: {"error": ValueError(text)},
)
"""The places of a text in what becomes a file of a bundle."""

NAMED: tuple[Any, ...] = (
    {"peer_secret": CANARY},
    {"store_options": {"secret_access_key": CANARY, "account_key": [CANARY]}},
    {"api-key": {"of": CANARY, "uses": 7}},
)


def test_no_file_of_a_bundle_has_a_secret(
    run: Run, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-4711")
    bundle, log = tmp_path / "b.zip", tmp_path / "gateway.log"
    log.write_text("the end\n")
    run("doctor", "--data", str(root), "--bundle", str(bundle), "--log", str(log), "--fsck")
    names = ZipFile(bundle).namelist()
    assert len(names) >= 8
    for place in NESTED:
        for text in SECRETS:
            packed = texts_of(dict.fromkeys(names, place(text)))
            assert packed.keys() == {*names}
            found = [secret for secret in (CANARY, "canary", "CANARY", "hush-4711") if secret in str(packed)]
            assert not found, packed
    for content in NAMED:
        assert CANARY not in str(texts_of({"settings.json": content}))


def test_a_bundle_without_secrets_is_as_it_was() -> None:
    found = {"text": list(PLAIN), "none": None, "yes": True, "share": 0.5, "oidc_token_url": "https://a/b"}
    made = texts_of({"a.json": found, "gateway.log": "\n".join(PLAIN)})
    assert json.loads(made["a.json"]) == found
    assert made["gateway.log"].decode().splitlines() == [*PLAIN]


def test_long_words_of_a_log_take_no_long_time() -> None:
    """A name of a secret is looked for once in a word."""
    words = b"".join(b"%x " % (7 << 800_000) + b"secret" * 1_000 + b" " for _ in range(2))
    assert without_secrets(words) == words


def test_the_log_of_a_bundle_begins_with_a_whole_line(
    run: Run, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that is cut may lack the name that tells a secret."""
    log, bundle = tmp_path / "gateway.log", tmp_path / "b.zip"
    log.write_text(f"peer_secret={CANARY * (LOG_BYTES // len(CANARY) + 1)}\nthe end\n")
    run("doctor", "--data", str(root), "--bundle", str(bundle), "--log", str(log))
    with ZipFile(bundle) as packed:
        assert packed.read("gateway.log") == b"the end\n"
