"""READ ACLs as `setfacl` commands, run on a real directory and tried by real accounts."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from coordinator.access.acl_export import exported
from log_tables.cluster.acl import Acl
from tests.kit.acls import acl

TOPICS = ["flights", "flights-2", "trips"]
DIRECTORIES = {"flights": ["topics/flights"], "flights-2": ["topics/flights-2~2"], "trips": ["topics/trips"]}
HIDDEN = ["credentials/log/0.parquet", "staging/0.arrow", "topics/__consumer_offsets/partition=0/0.parquet"]
METADATA = "topics/__cluster_metadata/partition=0/0.parquet"

tried_by_accounts = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setfacl") is None,
    reason="only root may act as other accounts, and setfacl is in the package acl",
)


@pytest.fixture
def root() -> Iterator[Path]:
    """A root in a directory that all accounts can reach."""
    with tempfile.TemporaryDirectory() as name:
        made = Path(name)
        for path in [*(segment(topic) for topic in TOPICS), METADATA, *HIDDEN]:
            written(made, path)
        yield made


def segment(topic: str, name: str = "0.parquet") -> str:
    return f"{DIRECTORIES[topic][0]}/partition=0/{name}"


def written(root: Path, path: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text("a record")


def run(acls: list[Acl], root: Path) -> None:
    script = exported("posix", acls, [str(root)], DIRECTORIES)
    subprocess.run(["sh", "-c", script], check=True, stdout=subprocess.DEVNULL)


def reads(root: Path, path: str, user: str, groups: Sequence[str] = ()) -> bool:
    tried = subprocess.run(
        ["cat", root / path],
        user=user,
        group="nogroup",
        extra_groups=groups,
        capture_output=True,
        check=False,
    )
    return tried.stdout == b"a record"


def read_by(root: Path, user: str, *groups: str) -> list[str]:
    return [topic for topic in TOPICS if reads(root, segment(topic), user, groups)]


@tried_by_accounts
def test_an_account_reads_the_topics_that_its_acls_name_and_nothing_else(root: Path) -> None:
    run([acl("flights", "User:nobody")], root)
    assert read_by(root, "nobody") == ["flights"]
    assert read_by(root, "daemon") == []
    assert reads(root, METADATA, "nobody")
    assert not reads(root, METADATA, "daemon")
    assert not any(reads(root, path, "nobody") for path in HIDDEN)


@tried_by_accounts
def test_files_that_come_later_are_read_by_the_same_accounts(root: Path) -> None:
    run([acl("flights", "User:nobody")], root)
    written(root, segment("flights", "1.parquet"))
    written(root, "topics/flights/partition=1/0.parquet")
    written(root, "topics/later/partition=0/0.parquet")
    assert reads(root, segment("flights", "1.parquet"), "nobody")
    assert reads(root, "topics/flights/partition=1/0.parquet", "nobody")
    assert not reads(root, segment("flights", "1.parquet"), "daemon")
    assert not reads(root, "topics/later/partition=0/0.parquet", "daemon")


@tried_by_accounts
def test_a_prefix_is_all_topics_that_begin_so_and_a_denial_is_a_denial(root: Path) -> None:
    run(
        [acl("fl", "User:nobody", prefixed=True), acl("*", "User:*"), acl("*", "User:daemon", deny=True)],
        root,
    )
    assert read_by(root, "nobody") == TOPICS
    assert read_by(root, "games") == TOPICS
    assert read_by(root, "daemon") == []
    run([acl("fl", "User:nobody", prefixed=True), acl("flights", "User:*", deny=True)], root)
    assert read_by(root, "nobody") == ["flights-2"]
    assert read_by(root, "games") == []


@tried_by_accounts
def test_a_group_reads_what_its_acls_name_but_for_members_who_are_denied(root: Path) -> None:
    run([acl("flights", "Group:games"), acl("flights", "User:daemon", deny=True)], root)
    assert read_by(root, "nobody", "games") == ["flights"]
    assert read_by(root, "nobody") == []
    assert read_by(root, "daemon", "games") == []


@tried_by_accounts
def test_a_denial_of_a_group_keeps_out_those_whom_only_everybodys_acl_lets_in(root: Path) -> None:
    run([acl("*", "User:*"), acl("flights", "Group:games", deny=True)], root)
    assert read_by(root, "nobody") == TOPICS
    assert read_by(root, "nobody", "games") == ["flights-2", "trips"]


def test_what_cannot_be_said_is_a_comment() -> None:
    acls = [
        acl("flights", "User:two words"),
        acl("flights", "User:0"),
        acl("flights", "Group:crew", deny=True),
        acl("flights", "User:ann", host="10.0.0.1"),
    ]
    comments = [
        line for line in exported("posix", acls, ["/data"], DIRECTORIES).splitlines() if line[0] == "#"
    ]
    lost, *others = comments[1:]
    assert comments[0] == "#!/bin/sh"
    assert lost.startswith(
        "# the ACL that allows READ on LITERAL flights to User:ann from host 10.0.0.1 is left"
    )
    assert others == [
        "# User:0 is left out: it is no account's name",
        "# User:two words is left out: it is no account's name",
        "# denials of Group:crew count for those of its members whom no other ACL lets read",
        "# a new topic is nobody's to read: print this again once there is one",
    ]


def test_names_are_quoted_for_the_shell() -> None:
    script = exported(
        "posix", [acl("flights", "User:$(id)")], ["/my data/$(id)"], {"flights": ["topics/a b"]}
    )
    assert "cd '/my data/$(id)'\n" in script
    assert "grant 'topics/a b' g::---,m::rX,o::---\n" in script
    assert script.count("$(id)") == 2
