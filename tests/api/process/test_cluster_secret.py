"""Whose gateways are let in: one secret for a cluster, and exit code 2 for a gateway that has another."""

import json
import os
import shutil
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from api.process.cluster_secret import peer_secrets
from coordinator.brokers.brokers import asker_of
from coordinator.brokers.peer_secret import PeerSecrets
from coordinator.brokers.peers import ASKER, TARGET
from ingest.settings import Settings, load_settings
from log_tables.clock import SystemClock
from log_tables.cluster.cluster import Cluster
from log_tables.errors import InvalidConfig
from log_tables.layout import CREDENTIALS, PEER_SECRET
from log_tables.root.copy import copy_root
from log_tables.store.store import open_store
from tests.kit.forked import run_lakelog
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.run_credential import is_secured
from tests.kit.support import WAIT_S, S3Server

ONE, OTHER = "1" * 32, "2" * 32


def environment(**named: str) -> dict[str, str]:
    return {**{k: v for k, v in os.environ.items() if not k.startswith("LAKELOG_")}, **named}


def refused(data: str, *flags: str, **named: str) -> str:
    """The sentence with which a gateway refuses to start."""
    words = ["serve", "--data", data, "--port", "0", *flags, "--set", "leader_timeout_ms=2000"]
    if is_secured():
        words += ["--set", "authentication_methods=api-key"]
    ended = run_lakelog(*words, environment=environment(**named))
    assert ended.returncode == 2, ended
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    return ended.stderr


def test_a_local_root_has_the_secret_in_a_file_of_its_owner(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    made = peer_secrets(Settings(), store, SystemClock())
    assert made == peer_secrets(Settings(), store, SystemClock())
    file = tmp_path / PEER_SECRET
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / CREDENTIALS).stat().st_mode) == 0o700
    assert len(made[0]) == 64


@pytest.mark.parametrize("mode", [0o755, 0o710, 0o701])
def test_a_directory_that_others_may_look_into_is_refused(tmp_path: Path, mode: int) -> None:
    """Such as one that was copied by a program which keeps no modes: others would be gateways."""
    store = open_store(tmp_path)
    made = peer_secrets(Settings(), store, SystemClock())
    (tmp_path / CREDENTIALS).chmod(mode)
    with pytest.raises(InvalidConfig, match="run `chmod -R go= credentials` in the root"):
        peer_secrets(Settings(), store, SystemClock())
    (tmp_path / CREDENTIALS).chmod(0o700)
    assert peer_secrets(Settings(), store, SystemClock()) == made


def test_gateways_that_make_the_secret_at_once_agree(tmp_path: Path) -> None:
    at_once = 4
    barrier = threading.Barrier(at_once)

    def make(_: int) -> tuple[str, ...]:
        store = open_store(tmp_path)
        barrier.wait()
        return peer_secrets(Settings(), store, SystemClock())

    with ThreadPoolExecutor(at_once) as pool:
        assert len(set(pool.map(make, range(at_once)))) == 1


@pytest.mark.parametrize("held", [b"", b"short", b"\xff"])
def test_a_file_of_the_root_without_a_secret_is_refused(tmp_path: Path, held: bytes) -> None:
    store = open_store(tmp_path)
    store.put(PEER_SECRET, held)
    with pytest.raises(InvalidConfig, match="credentials/peer-secret holds no secret"):
        peer_secrets(Settings(), store, SystemClock())


def test_a_copy_of_the_root_never_has_the_secret(tmp_path: Path) -> None:
    source = open_store(tmp_path / "root")
    Cluster.open(source)
    (secret,) = peer_secrets(Settings(), source, SystemClock())
    for name, with_credentials in (("without", False), ("with", True)):
        copy_root(source, open_store(tmp_path / name), SystemClock(), with_credentials=with_credentials)
        files = [path.read_bytes() for path in (tmp_path / name).rglob("*") if path.is_file()]
        assert files
        assert not [found for found in files if secret.encode() in found]


def test_a_file_has_the_newest_first_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{ONE}\n\n{OTHER}\n")
    file.chmod(0o600)
    settings = Settings(peer_secret_file=str(file))
    assert peer_secrets(settings, open_store(tmp_path), SystemClock()) == (ONE, OTHER)
    file.chmod(0o640)
    with pytest.raises(InvalidConfig, match="chmod 600"):
        peer_secrets(settings, open_store(tmp_path), SystemClock())
    with pytest.raises(InvalidConfig, match="cannot be read"):
        peer_secrets(Settings(peer_secret_file=str(tmp_path / "none")), open_store(tmp_path), SystemClock())


def test_a_secret_is_no_flag_and_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidConfig, match="every user of the machine sees flags") as error:
        load_settings(None, peer_secret=ONE)
    assert ONE not in error.value.message
    monkeypatch.setenv("LAKELOG_PEER_SECRET", ONE)
    assert ONE not in repr(load_settings())
    assert ONE not in load_settings().model_dump_json()


def test_another_secret_is_exit_code_2_and_a_sentence(tmp_path: Path, process: None) -> None:
    with running_gateway(tmp_path, leader_timeout_ms=2000) as gateway:
        said = refused(str(tmp_path), LAKELOG_PEER_SECRET=OTHER)
        assert f"the gateway at {gateway.url}" in said
        assert "another peer secret" in said
        assert OTHER not in said
        said = refused(str(tmp_path), "--workers", "2", LAKELOG_PEER_SECRET=OTHER)
        assert "another peer secret" in said
        assert OTHER not in said
    with running_gateway(tmp_path):  # the records of the dead keep nobody out
        pass


def test_a_second_gateway_on_a_bucket_needs_the_secret_of_the_first(s3: S3Server) -> None:
    url, options = s3.bucket("one-secret"), json.dumps(s3.options)
    with running_gateway(url, store_options=options, leader_timeout_ms=2000):
        assert "another peer secret" in refused(url, LAKELOG_STORE_OPTIONS=options)


def attack(gateway: RunningGateway, copy: Path) -> list[httpx.Response]:
    """Ask as a gateway, with all that `copy` of the root tells."""
    cluster = Cluster.open(open_store(copy), create=False)
    (asked,) = cluster.metadata_log.brokers.values()
    answers = []
    for guess in (cluster.cluster_id, asked.incarnation, *asked.peer_keys):
        secrets = PeerSecrets([guess.ljust(32, "0")], cluster.cluster_id)
        target = secrets.target(asked.incarnation, secrets.fingerprints)
        assert target is not None
        for name in (target.name, f"{cluster.cluster_id}.{asked.incarnation}"):
            headers = {TARGET: name, ASKER: asker_of(asked, target), "lakelog-caller": '{"principal":{}}'}
            for method, path in (
                ("GET", "/peer/ping"),
                ("POST", "/peer/append?topic=t&partition=0"),
                ("POST", "/peer/lead?topic=t&partition=0"),
                ("GET", "/consumers/g/offsets"),
            ):
                answers.append(gateway.client.request(method, path, headers=headers))
    return answers


def test_who_reads_all_of_the_root_but_the_credentials_is_no_gateway(tmp_path: Path, process: None) -> None:
    root, copy = tmp_path / "root", tmp_path / "copy"
    with running_gateway(root) as gateway:
        gateway.create_topic("t")
        shutil.copytree(root, copy, ignore=shutil.ignore_patterns(CREDENTIALS))
        answers = attack(gateway, copy)
        assert len(answers) > 20
        assert {answer.status_code for answer in answers} == {421}


def test_of_two_that_start_at_once_on_a_bucket_without_a_secret_one_serves(s3: S3Server) -> None:
    url, options = s3.bucket("at-once"), json.dumps(s3.options)
    command = [sys.executable, "-m", "lakelog", "serve", "--data", url, "--port", "0"]
    command += ["--set", "leader_timeout_ms=2000"]
    started = [
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(LAKELOG_STORE_OPTIONS=options),
        )
        for _ in range(2)
    ]
    lines = [each.stdout.readline() for each in started if each.stdout is not None]
    ended = []
    for each, line in zip(started, lines, strict=True):
        if line:
            each.terminate()
        ended.append((bool(line), each.communicate(timeout=WAIT_S)[1], each.returncode))
    (_, said, refusal), (_, _, status) = sorted(ended, key=lambda end: end[0])
    assert ([line for line in lines if line], refusal, status) == ([max(lines)], 2, 0), ended
    assert "another peer secret" in said
    assert "Traceback" not in said
