"""`lakelog store check`: a directory, a bucket, and buckets that break the promise of conditional puts."""

import json
from pathlib import Path

import pytest

from log_tables.store.requirements import RACERS
from log_tables.store.store import open_store
from tests.kit.cli import FAILED, USAGE, Run, lines, printed, wrong
from tests.kit.s3_proxy import Put, decided_too_early, s3_proxy, without_condition
from tests.kit.support import S3Server, free_port


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, run: Run) -> Run:
    """Runs commands without this shell's store options."""
    monkeypatch.delenv("LAKELOG_STORE_OPTIONS", raising=False)
    return run


def test_a_directory_passes_and_nothing_is_left_in_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"mine")
    *requirements, verdict = lines(run("store", "check", str(tmp_path)))
    assert verdict == f"PASS: {tmp_path} can hold a log"
    assert len(requirements) == 7
    assert all(line.startswith("PASS  ") for line in requirements), requirements
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_bucket_passes_and_nothing_is_left_in_it(
    run: Run, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = s3.bucket("passes")
    monkeypatch.setenv("LAKELOG_STORE_OPTIONS", json.dumps(s3.options))
    done = printed(run("store", "check", f"{url}/logs", "--json"))
    assert done["passed"], done
    assert not any(each["problem"] or each["advice"] for each in done["requirements"])
    assert [*open_store(url, s3.options, create=False).list("")] == []


@pytest.mark.parametrize(
    ("put", "requirement", "says"),
    [
        (without_condition, "a put of a name that exists is refused", "ignores If-None-Match"),
        (
            decided_too_early(RACERS),
            "of many puts of one name at once one succeeds",
            f"{RACERS} of {RACERS} conditional puts",
        ),
    ],
    ids=["drops the header", "decides too early"],
)
def test_a_proxy_that_breaks_conditional_puts_is_found(
    run: Run, s3: S3Server, monkeypatch: pytest.MonkeyPatch, put: Put, requirement: str, says: str
) -> None:
    url = s3.bucket(put.__qualname__.partition(".")[0].replace("_", "-"))
    with s3_proxy(s3, put) as endpoint:
        monkeypatch.setenv("LAKELOG_STORE_OPTIONS", json.dumps({**s3.options, "aws_endpoint": endpoint}))
        done = run("store", "check", url)
    assert done.exit_code == FAILED
    told = done.stdout.splitlines()
    assert told[-1] == f"FAIL: {url} cannot hold a log"
    (failed,) = [line for line in told if line.startswith(f"FAIL  {requirement}: ")]
    assert says in failed
    assert "two gateways would overwrite each other's commits" in told[told.index(failed) + 1]
    assert [*open_store(url, s3.options, create=False).list("")] == []


def test_a_store_that_is_not_there_is_an_error_that_names_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {
        "aws_endpoint": f"http://127.0.0.1:{free_port()}",
        "aws_access_key_id": "canary-key",
        "aws_secret_access_key": "canary-secret",
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
    }
    monkeypatch.setenv("LAKELOG_STORE_OPTIONS", json.dumps(options))
    done = run("store", "check", "s3://nobody/logs")
    wrong(done, FAILED, "s3://nobody/logs could not be checked: the store failed")
    assert "canary" not in done.output
    wrong(run("store", "check", str(tmp_path / "none")), USAGE, "there is no directory")
    wrong(run("store", "check", "memory://x"), USAGE, "memory of one process")
    wrong(run("store", "check", "Memory://x"), USAGE, "memory of one process")
    wrong(run("store", "check", "ftp://x"), USAGE, "not supported")


def test_a_store_that_never_answers_is_given_up_in_time(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = {"aws_endpoint": f"http://127.0.0.1:{silent.getsockname()[1]}", "aws_allow_http": "true"}
        keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "aws_region": "us-east-1"}
        monkeypatch.setenv("LAKELOG_STORE_OPTIONS", json.dumps({**options, **keys}))
        done = run("store", "check", "s3://silent", "--timeout", "1")
    wrong(done, FAILED, "s3://silent could not be checked: it took longer than 1 s")
