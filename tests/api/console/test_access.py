"""Who may do what, on pages."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, expect

from api.console.pages.access import CredentialKind, new_credential, principals_of
from log_tables.cluster.access_record import AccessRules, Quota
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.credential_log import Credentials
from tests.kit.browser import Visitor, visitor
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.secured import Secured, acl, bearer
from tests.kit.support import wait_until

ANN = "User:ann"
PAGES = ("", "/keys", "/acls", "/acls/new", "/quotas", "/history", "/audit")


class House(NamedTuple):
    """A secured gateway, its root, and an administrator's key."""

    gateway: RunningGateway
    root: Secured
    admin: str


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    data = tmp_path_factory.mktemp("secured")
    root = Secured(data)
    admin = root.key()
    root.user("dora", "a long password")
    root.allow(acl(ANN, Operation.READ, ResourceType.TOPIC, "flights*"))
    with running_gateway(data, authentication_methods="api-key,scram") as gateway:
        yield House(gateway, root, admin)


@pytest.fixture
def admin(browser: Browser, house: House) -> Iterator[Visitor]:
    """An administrator who has logged in."""
    with visitor(browser, house.gateway.url) as someone:
        page = someone.go("/console/access")
        page.get_by_label("API key").fill(house.admin)
        page.get_by_role("button", name="Log in with the key").click()
        page.wait_for_url("**/console/access")
        yield someone


def test_everybody_who_is_known_is_listed(admin: Visitor, house: House) -> None:
    page = admin.page
    expect(page.get_by_role("row", name=ANN)).to_be_visible()
    expect(page.get_by_role("row", name="User:dora")).to_contain_text("yes")
    expect(page.get_by_role("row", name="User:admin")).to_contain_text("super user")
    admin.check("access")
    admin.go("/console/access/keys")
    expect(page.get_by_role("rowheader", name=house.admin.partition(".")[0])).to_be_visible()
    assert house.admin.partition(".")[2] not in page.content()
    admin.check("access-keys")


def test_keys_and_users_are_made_by_the_commands_that_are_shown(admin: Visitor, house: House) -> None:
    page = admin.go("/console/access/keys")
    page.get_by_label("Name", exact=True).fill("shop")
    page.get_by_label("Days until").fill("90")
    page.get_by_role("button", name="Show the command").click()
    root = str(house.gateway.data)
    made = page.locator("#made")
    expect(made).to_contain_text(f"lakelog key create User:shop --expires-days 90 --data {root}")
    expect(page.get_by_text(f"lakelog user remove --data {root} -- dora")).to_be_attached()
    made.get_by_role("link", name="Give User:shop rights").click()
    expect(page.get_by_label("Principal")).to_have_value("User:shop")
    admin.go("/console/access/keys?kind=user&name=emil")
    expect(made).to_contain_text(f"lakelog user create --data {root} -- emil")
    admin.check("access-keys-made")


@pytest.mark.parametrize(
    ("kind", "name", "days", "command"),
    [
        ("key", "a b", "", "lakelog key create 'User:a b' --data /r"),
        ("key", "User:ann", "7", "lakelog key create User:ann --expires-days 7 --data /r"),
        ("user", "-x", "", "lakelog user create --data /r -- -x"),
        ("key", "ann", "soon", ""),
        ("user", "*", "", ""),
    ],
)
def test_a_credential_has_a_command_unless_it_would_be_refused(
    kind: CredentialKind, name: str, days: str, command: str
) -> None:
    made = new_credential("/r", kind, name, days)
    assert (made.command, bool(made.refused)) == (command, not command)


def test_an_open_gateway_says_how_to_close_it(someone: Visitor, gateway: RunningGateway) -> None:
    page = someone.go("/console/access/acls")
    page.get_by_role("link", name="How to close it").click()
    steps = page.locator("#close li")
    expect(steps).to_have_count(5)
    expect(steps.nth(0)).to_contain_text(f"lakelog security init --data {gateway.data}")
    expect(steps.nth(2)).to_contain_text("--set authentication_methods=api-key")
    expect(steps.nth(4)).to_contain_text("lakelog security enable")
    someone.check("access-open")


def test_an_acl_is_made_and_deleted_after_dry_runs(admin: Visitor, house: House) -> None:
    page = admin.go("/console/access/acls/new")
    admin.check("access-acl-new")
    page.get_by_label("Principal").fill("User:<b>bob</b>")
    page.get_by_label("Its name").fill("orders")
    page.get_by_role("button", name="Show the change").click()
    expect(page.get_by_role("row", name="ALLOW READ on LITERAL TOPIC orders")).to_be_visible()
    admin.check("access-acl-dry-run")
    page.get_by_role("button", name="Create the ACL").click()
    page.wait_for_url("**/console/access/acls")
    row = page.get_by_role("row", name="User:<b>bob</b>")
    expect(row).to_be_visible()
    admin.check("access-acls")
    row.get_by_role("link").click()
    page.get_by_role("button", name="Delete the ACL").click()
    page.wait_for_url("**/console/access/acls")
    expect(row).to_have_count(0)
    admin.go("/console/access/audit?kind=change")
    for operation in ("CreateAcls", "DeleteAcls"):  # they come a moment later
        expect(page.get_by_role("cell", name=operation).first).to_be_visible(timeout=60_000)
    admin.check("access-audit")


def test_acls_go_back_to_a_version_of_the_history(admin: Visitor, house: House) -> None:
    house.root.allow(acl("User:gone", Operation.READ, ResourceType.TOPIC, "flights"))
    page = admin.go("/console/access/history")
    row = page.get_by_role("row").nth(1)
    expect(row).to_contain_text("User:gone")
    admin.check("access-history")
    page.get_by_role("row").nth(2).get_by_role("link", name="Go back").click()
    expect(page.get_by_role("row", name="User:gone")).to_contain_text("there")
    page.get_by_role("button", name="Go back to these ACLs").click()
    page.wait_for_url("**/console/access/acls")
    expect(page.get_by_role("row", name=ANN)).to_be_visible()
    expect(page.get_by_role("row", name="User:gone")).to_have_count(0)
    admin.check_nothing_wrong()


def test_a_wrong_acl_is_refused_before_it_is_sent(house: House) -> None:
    query = "resource_type=TOPIC&resource_name=x&pattern_type=LITERAL&principal=ann&host=*&operation=READ"
    page = house.gateway.client.get(
        f"/console/access/acls/new?{query}&permission=ALLOW", headers=bearer(house.admin)
    )
    assert page.status_code == 200
    assert "It would be refused" in page.text
    assert "data-send" not in page.text


def test_whoever_may_not_describe_the_cluster_sees_none_of_it(house: House) -> None:
    key = house.root.key(ANN)
    wait_until(
        lambda: house.gateway.client.get("/topics", headers=bearer(key)).is_success, "the key is known"
    )
    for path in PAGES:
        page = house.gateway.client.get(f"/console/access{path}", headers=bearer(key))
        assert page.status_code == 403, path
        assert "dora" not in page.text


def test_quotas_and_empty_logs_are_shown(someone: Visitor) -> None:
    someone.go("/console/access/quotas")
    someone.check("access-quotas")
    page = someone.go("/console/access/audit")
    expect(page.get_by_text("An open gateway keeps no audit log")).to_be_visible()
    someone.check_nothing_wrong()


def test_principals_are_those_of_rules_and_credentials() -> None:
    rules = AccessRules(
        frozenset([acl(ANN, Operation.READ, ResourceType.TOPIC, "a")]),
        frozenset(["User:root"]),
        {"Group:g": Quota()},
    )
    found = {each.name: each for each in principals_of(rules, Credentials())}
    assert {*found} == {ANN, "User:root", "Group:g"}
    assert (found[ANN].acls, found["User:root"].is_super, found["Group:g"].has_quota) == (1, True, True)


def test_a_name_in_the_audit_log_turns_no_text_around(house: House) -> None:
    head, path = bearer(house.admin), "/consumers/%E2%80%AEexe.log/offsets"
    answer = house.gateway.client.put(path, json={"offsets": []}, headers=head)
    assert answer.status_code == 422, answer.text
    pages: list[str] = []

    def audited() -> bool:
        pages.append(house.gateway.client.get("/console/access/audit?text=exe.log", headers=head).text)
        return "GROUP" in pages[-1]

    wait_until(audited, "the refused change is audited")
    assert "\u202e" not in pages[-1]
    assert '<span class="hid">\\u202e</span>exe.log' in pages[-1]
