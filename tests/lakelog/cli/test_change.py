"""Commands that change the root past every gateway are in the audit log, with the account that ran them."""

import json
import os
import pwd
import socket
from pathlib import Path

import pytest

from lakelog.cli.commands import acl, quota, security
from lakelog.cli.commands.security import PASSWORD_VARIABLE
from log_tables.cluster.admin.audit_log import keep_audit_topic
from log_tables.cluster.cluster import Cluster
from log_tables.layout import AUDIT, partition_directory, topic_directory
from log_tables.store.store import open_store
from tests.kit.audits import audit_rows, short, wait_for_audit
from tests.kit.cli import Run, printed
from tests.kit.gateway import running_gateway
from tests.kit.secured import ADMIN, Secured, bearer

PASSWORD = "canary-password"
GROUPS = {
    "acl": acl.app,
    "key": security.keys,
    "quota": quota.app,
    "security": security.app,
    "user": security.users,
}
READS = {
    *("acl export", "acl history", "acl list", "key list", "quota history", "quota list"),
    *("security status", "user list"),
}
REVERTS = {"acl revert", "quota revert"}
"""They need a history to go back in."""

ANN = "User:ann"
ACL = ("--allow-principal", ANN, "--operation", "READ", "--topic", "t")
COMMANDS: dict[str, tuple[str, ...]] = {
    "security init": (),
    "security enable": (),
    "security disable": (),
    "security add-super-user": (ANN,),
    "security remove-super-user": (ANN,),
    "key create": (ANN, "--expires-days", "1"),
    "key revoke": ("{key}",),
    "user create": ("bob", "--iterations", "4096"),
    "user remove": ("bob",),
    "quota set": (ANN, "request_rate=5"),
    "quota remove": (ANN,),
    "acl create": ACL,
    "acl delete": ("--topic", "t"),
}
"""Each command that changes the root, in an order in which all succeed."""

THE_ACL = f"ALLOW READ on LITERAL TOPIC t to {ANN} from *"
EVENTS: list[tuple[str, str, str | None, dict[str, object] | None]] = [
    ("CreateApiKey", "API_KEY", None, {"principal": ADMIN, "super_user": True}),
    ("EnableSecurity", "CLUSTER", "kafka-cluster", None),
    ("DisableSecurity", "CLUSTER", "kafka-cluster", None),
    ("CreateSuperUser", "USER", ANN, None),
    ("RemoveSuperUser", "USER", ANN, None),
    ("CreateApiKey", "API_KEY", "{key}", {"principal": ANN}),
    ("RevokeApiKey", "API_KEY", "{key}", None),
    ("AlterUserScramCredentials", "USER", "bob", {"mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"]}),
    ("DeleteUserScramCredentials", "USER", "bob", None),
    ("AlterClientQuotas", "QUOTA", ANN, {"rates": {"request_rate": 5.0}}),
    ("DeleteClientQuotas", "QUOTA", ANN, {"names": []}),
    ("CreateAcls", "CLUSTER", "kafka-cluster", {"acls": [THE_ACL]}),
    ("DeleteAcls", "CLUSTER", "kafka-cluster", {"acls": [THE_ACL]}),
]


def test_every_command_is_one_that_reads_or_one_that_is_audited() -> None:
    found = {
        f"{group} {each.name or each.callback.__name__.replace('_', '-')}"
        for group, app in GROUPS.items()
        for each in app.registered_commands
        if each.callback is not None
    }
    assert found == READS | REVERTS | COMMANDS.keys()
    assert not READS & COMMANDS.keys()


def test_each_change_is_an_event_of_the_account_without_secrets(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)
    monkeypatch.setenv("LOGNAME", "somebody-else")
    keep_audit_topic(Cluster.open(open_store(str(tmp_path))), {})
    made, secrets = "", [PASSWORD]
    for command, given in COMMANDS.items():
        words = [each.replace("{key}", made) for each in given]
        done = printed(run(*command.split(), *words, "--data", str(tmp_path), "--json"))
        if "key" in done:
            made, _, secret = done["key"].partition(".")
            secrets.append(secret)
    found = audit_rows(tmp_path)
    shown = []
    for row in found:
        facts = json.loads(row["event"])["api"].get("request", {}).get("data")
        if facts is not None:
            facts.pop("expires_ms", None)
        name = "{key}" if row["resource_name"] == made else row["resource_name"]
        shown.append((row["operation"], row["resource_type"], name, facts))
    shown[0] = (*shown[0][:2], None, shown[0][3])
    assert shown == EVENTS
    whose = short(found, "principal", "address", "gateway", "outcome")
    assert set(whose) == {(f"os:{pwd.getpwuid(os.getuid()).pw_name}", socket.gethostname(), None, "Success")}
    assert not any(secret in str(found) for secret in secrets)


def test_without_an_audit_log_nothing_is_added(tmp_path: Path, run: Run) -> None:
    done = run("security", "init", "--data", str(tmp_path))
    (line,) = done.stderr.splitlines()
    assert (done.exit_code, "made a new one" in line) == (0, True)
    assert audit_rows(tmp_path) == []


def test_a_change_that_cannot_be_added_is_made_and_said(tmp_path: Path, run: Run) -> None:
    keep_audit_topic(Cluster.open(open_store(str(tmp_path))), {})
    log = tmp_path / partition_directory(topic_directory(AUDIT), 0)
    log.rename(tmp_path / "away")
    done = run("security", "init", "--data", str(tmp_path), "--json")
    assert printed(done)["principal"] == ADMIN
    assert "is not in the audit log yet, but waits for a gateway" in done.stderr
    (tmp_path / "away").rename(log)
    with running_gateway(tmp_path, authentication_methods="api-key"):
        wait_for_audit(tmp_path, "operation = 'CreateApiKey'")


def test_a_gateway_goes_on_after_a_command(tmp_path: Path, run: Run) -> None:
    root = Secured(tmp_path)
    admin = root.key()
    with running_gateway(tmp_path, linger_ms=0, authentication_methods="api-key") as gateway:
        gateway.client.headers.update(bearer(admin))
        for number in range(2):
            gateway.create_topic(f"t{number}")
            wait_for_audit(tmp_path, f"resource_name = 't{number}'")
            assert run("quota", "set", ANN, "request_rate=5", "--data", str(tmp_path)).exit_code == 0
    assert (
        short(audit_rows(tmp_path, "kind = 'change'"), "operation")
        == [
            ("CreateTopics",),
            ("AlterClientQuotas",),
        ]
        * 2
    )
