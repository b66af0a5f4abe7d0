"""Secrets that are planted in a cluster and used in every way are in nothing that others may read."""

import base64
import hashlib
import json
import os
from pathlib import Path

import httpx
import pytest

from log_tables.layout import CREDENTIALS
from tests.kit.forked import run_lakelog
from tests.kit.gateway import start_gateway
from tests.kit.secured import Secured, bearer, everything

PASSWORD, PEER = "canary-password-of-bob", "canary-peer-secret-0123456789abcdef"
USER = "User:canary"


def command(*words: str, **variables: str) -> str:
    """The output of a command on both streams."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LAKELOG_")} | variables
    run = run_lakelog(*words, environment=environment)
    return run.stdout + run.stderr


def test_no_secret_is_anywhere_but_in_its_place(
    tmp_path: Path, process: None, capfd: pytest.CaptureFixture[str]
) -> None:
    data, secret_file = tmp_path / "root", tmp_path / "peer"
    secret_file.write_text(PEER)
    secret_file.chmod(0o600)
    root = Secured(data)
    root.allow(*everything(USER))
    key = root.key(USER)
    secret = key.partition(".")[2]
    seen = [command("user", "create", "bob", "--data", str(data), LAKELOG_NEW_PASSWORD=PASSWORD)]
    gateway = start_gateway(
        data, peer_secret_file=secret_file, authentication_methods="api-key,scram", log_level="debug"
    )
    try:
        for headers in (
            bearer(key),
            bearer(f"{key}x"),
            {"Authorization": "Basic " + base64.b64encode(f"bob:{PASSWORD}".encode()).decode()},
            {"Authorization": "Basic " + base64.b64encode(f"eve:{PASSWORD}".encode()).decode()},
            {"Authorization": f"Bearer {PASSWORD}.{PASSWORD}.{PASSWORD}"},
            {"Authorization": f"Unknown {secret}"},
        ):
            for method, path, body in (
                ("POST", "/topics", {"topic_name": "t"}),
                ("POST", "/topics/t", {"records": [{"value": 1}]}),
                ("GET", "/topics/t/partitions/0/records", None),
                ("PUT", "/consumers/g/offsets", {"offsets": []}),
                ("GET", "/nothing", None),
                ("GET", "/metrics", None),
                ("POST", "/topics/t/partitions/x", {}),
            ):
                answer = gateway.client.request(method, path, json=body, headers=headers)
                seen.append(told(answer))
        assert any("lakelog_" in each for each in seen), "the metrics are among it"
    finally:
        gateway.stop()
    audited = command("sql", "select * from audit", "--format", "json", "--data", str(data))
    assert all(kind in audited for kind in ("change", "refusal", "access", USER, "User:bob")), audited
    seen.append(audited)
    for words in ("key list", "user list", "security status", "acl list", "fsck --deep"):
        asked = [*words.split(), "--data", str(data)]
        seen += [command(*asked), command(*asked, "--json")]
    seen.append(command("serve", "--data", str(data), "--set", f"peer_secret={PEER[::-1]}"))
    seen.append("".join(capfd.readouterr()))
    readable = [
        path.read_bytes().decode("latin-1")
        for path in data.rglob("*")
        if path.is_file() and CREDENTIALS not in path.relative_to(data).parts
    ]
    assert len(readable) > 5
    digest = hashlib.sha256(secret.encode()).digest()
    hashes = [digest.hex(), base64.b64encode(digest).decode()]
    for canary in (secret, PASSWORD, PEER, PEER[::-1], *hashes):
        assert not any(canary in each for each in (*seen, *readable)), canary


def told(answer: httpx.Response) -> str:
    return json.dumps(dict(answer.headers)) + answer.text
