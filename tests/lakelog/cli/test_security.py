"""`lakelog security`, `key`, `user` and `quota`: they need the store alone, and show a secret once."""

import base64
import hashlib
import os
from pathlib import Path

import pytest
from typer.testing import Result

from coordinator.access.authentication.api_key import right_key
from coordinator.access.authentication.scram import is_password
from lakelog.cli.commands.security import PASSWORD_VARIABLE
from log_tables.cluster.access_record import AccessRules, Quota
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.credential_log import Credentials, open_credentials
from log_tables.store.store import open_store
from tests.kit.cli import USAGE, Run, lines, printed, wrong
from tests.kit.partitions import records


@pytest.fixture
def data(tmp_path: Path) -> str:
    return str(tmp_path / "data")


def rules(data: str) -> AccessRules:
    return Cluster.open(open_store(data), create=False).metadata_log.access


def credentials(data: str) -> Credentials:
    store = open_store(data)
    log = open_credentials(store, Cluster.open(store, create=False).clock, "")
    assert log is not None
    return log.credentials


def is_right(data: str, key: str) -> bool:
    key_id, _, secret = key.partition(".")
    return right_key(credentials(data).api_keys, key_id, secret.encode(), 0) is not None


def says_no_hash(data: str, done: Result) -> bool:
    found = credentials(data)
    secrets = [key.sha256 for key in found.api_keys.values()]
    secrets += [each.stored_key for user in found.users.values() for each in user.mechanisms.values()]
    texts = [form for secret in secrets for form in (secret.hex(), base64.b64encode(secret).decode())]
    return not any(text in done.stdout + done.stderr for text in texts)


# lakelog security.


def test_the_first_key_is_made_on_an_empty_root_and_again_when_it_is_lost(run: Run, data: str) -> None:
    made = run("security", "init", "--data", data, "--json")
    assert f"there was no cluster at {data}: made a new one, with the id " in made.stderr
    first = printed(made)
    assert first["principal"] == "User:admin"
    assert rules(data) == AccessRules(super_users=frozenset({"User:admin"}))
    again = run("security", "init", "--data", data)
    assert "no cluster" not in again.stderr
    second = lines(again)[0]
    assert second != first["key"]
    assert is_right(data, first["key"])
    assert is_right(data, second)
    files = [file.read_bytes() for file in Path(data).rglob("*") if file.is_file()]
    for key in (first["key"], second):
        secret = key.partition(".")[2].encode()
        assert not any(secret in content for content in files)


def test_a_cluster_is_secured_once_somebody_can_change_it(run: Run, data: str, root: Path) -> None:
    wrong(
        run("security", "enable", "--data", str(root)), USAGE, "make a key with `lakelog security init` first"
    )
    run("security", "init", "--data", data)
    assert printed(run("security", "status", "--data", data, "--json")) == {
        "secured": False,
        "super_users": ["User:admin"],
        "acls": 0,
    }
    for command, secured in (("enable", True), ("enable", True), ("disable", False), ("enable", True)):
        assert printed(run("security", command, "--data", data, "--json"))["secured"] is secured
    assert rules(data).secured
    assert lines(run("security", "status", "--data", data))[0] == "The cluster is secured."


@pytest.mark.parametrize(
    "words", [("security", "enable"), ("security", "status"), ("key", "list"), ("quota", "list")]
)
def test_only_the_first_key_begins_a_root(run: Run, data: str, words: tuple[str, ...]) -> None:
    os.mkdir(data)
    wrong(run(*words, "--data", data), USAGE, "there is no lakelog data at ")
    assert os.listdir(data) == []


def test_super_users_come_and_go(run: Run, data: str) -> None:
    run("security", "init", "--data", data)
    run("security", "enable", "--data", data)
    wrong(run("security", "remove-super-user", "User:admin", "--data", data), USAGE, "is the last super user")
    made = printed(run("security", "add-super-user", "User:ann", "--data", data, "--json"))
    assert made["super_users"] == ["User:admin", "User:ann"]
    run("security", "remove-super-user", "User:admin", "--data", data)
    assert rules(data).super_users == frozenset({"User:ann"})
    wrong(run("security", "add-super-user", "Group:ops", "--data", data), USAGE, "write it so")


# lakelog key.


def test_a_key_is_made_listed_and_revoked(run: Run, data: str) -> None:
    run("security", "init", "--data", data)
    made = printed(run("key", "create", "User:ann", "--expires-days", "1", "--data", data, "--json"))
    assert is_right(data, made["key"])
    done = run("key", "list", "--data", data, "--json")
    _, listed = printed(done)
    assert (listed["id"], listed["principal"], listed["last_used"]) == (made["id"], "User:ann", None)
    assert listed["created"] < listed["expires"]
    assert says_no_hash(data, done)
    assert made["key"].partition(".")[2] not in done.stdout
    assert printed(run("key", "revoke", made["id"], "--data", data, "--json")) == {"revoked": [made["id"]]}
    assert not is_right(data, made["key"])
    assert len(printed(run("key", "list", "--data", data, "--json"))) == 1


def test_what_is_no_key_is_named(run: Run, data: str) -> None:
    run("security", "init", "--data", data)
    wrong(run("key", "create", "ann", "--data", data), USAGE, "'ann' is not written as User:NAME")
    for days in ("inf", "1e9", "-1"):  # no calendar has the day on which such a key would end
        done = run("key", "create", "User:ann", "--expires-days", days, "--data", data)
        assert (done.exit_code, "'--expires-days'" in done.stderr) == (USAGE, True), done.output
    wrong(run("key", "revoke", "a1", "--data", data), USAGE, "there is no key 'a1'; see `lakelog key list`")
    done = run("key", "revoke", "a1.secret", "--data", data)
    wrong(done, USAGE, "the id of a key ends before its dot")
    assert "secret" not in done.stderr


# lakelog user.


def test_a_user_is_made_from_a_file_the_environment_or_a_prompt_and_removed(
    run: Run, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("security", "init", "--data", data)
    (tmp_path / "password").write_text("from a file\n")
    assert printed(
        run("user", "create", "ann", "--password-file", str(tmp_path / "password"), "--data", data, "--json")
    ) == {"created": "ann"}
    run("user", "create", "cid", "--data", data, stdin=b"from a prompt\nfrom a prompt\n")
    monkeypatch.setenv(PASSWORD_VARIABLE, "from the environment")
    run("user", "create", "bob", "--iterations", "4096", "--data", data)
    users = credentials(data).users
    for name, password in (("ann", "from a file"), ("bob", "from the environment"), ("cid", "from a prompt")):
        for mechanism, each in users[name].mechanisms.items():
            assert is_password(mechanism, each, password)
    assert {each.iterations for each in users["bob"].mechanisms.values()} == {4096}
    done = run("user", "list", "--data", data, "--json")
    assert printed(done) == [
        {"user": name, "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"]} for name in ("ann", "bob", "cid")
    ]
    assert says_no_hash(data, done)
    run("user", "remove", "ann", "--data", data)
    assert credentials(data).users.keys() == {"bob", "cid"}
    wrong(
        run("user", "remove", "ann", "--data", data), USAGE, "there is no user 'ann'; see `lakelog user list`"
    )


def test_no_option_takes_a_password(run: Run) -> None:
    assert "--password " not in run("user", "create", "--help").stdout


# lakelog quota.


def test_quotas_are_set_listed_and_removed(run: Run, data: str) -> None:
    run("security", "init", "--data", data)
    for words in (
        ("User:ann", "producer_byte_rate=1MiB", "request_rate=0.5"),
        ("User:ann", "request_rate=2"),
        ("default", "controller_mutation_rate=3"),
    ):
        run("quota", "set", *words, "--data", data)
    assert rules(data).quotas == {
        "User:ann": Quota(producer_byte_rate=1048576.0, request_rate=2.0),
        "<default>": Quota(controller_mutation_rate=3.0),
    }
    assert "1048576 (1MiB)" in run("quota", "list", "--data", data).stdout
    listed = printed(run("quota", "list", "--data", data, "--json"))
    assert [(each["entity"], each["request_rate"]) for each in listed] == [
        ("default", None),
        ("User:ann", 2.0),
    ]
    run("quota", "remove", "User:ann", "request_rate", "--data", data)
    assert printed(run("quota", "remove", "default", "--data", data, "--json")) == {"removed": "default"}
    assert rules(data).quotas == {"User:ann": Quota(producer_byte_rate=1048576.0)}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("set", "ann", "request_rate=1"), "'ann' of a quota is neither User:NAME nor Group:NAME"),
        (("set", "User:ann", "request_rate=0"), "request_rate = 0.0 is not above 0"),
        (("set", "User:ann", "request_rate=many"), "request_rate = 'many' is not a number"),
        (("set", "User:ann", "requests=1"), "there is no quota 'requests'; did you mean request_rate?"),
        (("remove", "User:ann"), "'User:ann' has no quota of its own; see `lakelog quota list`"),
        (("remove", "User:ann", "requests"), "there is no quota 'requests'; did you mean request_rate?"),
    ],
)
def test_what_is_no_quota_is_named(run: Run, data: str, words: tuple[str, ...], says: str) -> None:
    run("security", "init", "--data", data)
    wrong(run("quota", *words, "--data", data), USAGE, says)


def test_hashes_of_what_was_removed_are_in_no_file_that_the_log_names(run: Run, data: str) -> None:
    made = printed(run("security", "init", "--data", data, "--json"))
    run("key", "revoke", made["key"].partition(".")[0], "--data", data)
    store = open_store(data)
    log = open_credentials(store, Cluster.open(store, create=False).clock, "")
    assert log is not None
    assert log.partition.snapshot.cleaned == log.partition.high_watermark
    digest = hashlib.sha256(made["key"].partition(".")[2].encode()).digest()
    assert not any(base64.b64encode(digest) in (row.value or b"") for row in records(log.partition))
