"""Logging in and out: a session does what its credential may, for as long as that holds, and no more."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from playwright.sync_api import Browser, expect

from api.console.pages.login import local_path
from log_tables.cluster.acl import Operation, ResourceType
from tests.kit.browser import visitor
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.secured import Secured, acl, bearer
from tests.kit.support import wait_until

ANN = "User:ann"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
TOKEN = re.compile(r'name="csrf-token" content="([0-9a-f]+)"')


class House(NamedTuple):
    """A secured gateway, its root, and the keys of an administrator and of ann, who may read one topic."""

    gateway: RunningGateway
    root: Secured
    admin: str
    ann: str


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    data = tmp_path_factory.mktemp("secured")
    root = Secured(data)
    admin, ann = root.key(), root.key(ANN)
    root.user("dora", "a long password")
    root.allow(*(acl(ANN, each, ResourceType.TOPIC, "hers") for each in (Operation.READ, Operation.WRITE)))
    with running_gateway(data, authentication_methods="api-key,scram") as gateway:
        cluster = root.cluster.cluster_id
        for name in ("hers", "secret-plans"):
            body = {"topic_name": name}
            answer = gateway.client.post(f"/v3/clusters/{cluster}/topics", json=body, headers=bearer(admin))
            assert answer.status_code == 201, answer.text
        yield House(gateway, root, admin, ann)


def cookie_name(house: House) -> str:
    return f"lakelog_{house.root.cluster.cluster_id[:8]}"


def logged_in(house: House, key: str) -> httpx.Client:
    """A client with the session of this key."""
    client = httpx.Client(base_url=house.gateway.url)
    answer = client.post("/console/login", data={"key": key})
    assert answer.status_code == 303, answer.text
    return client


def test_somebody_logs_in_and_out_without_scripts(browser: Browser, house: House) -> None:
    with visitor(browser, house.gateway.url, scripts=False) as someone:
        page = someone.go("/console/topics?order=lag")
        page.get_by_label("API key").fill(house.ann)
        page.get_by_role("button", name="Log in with the key").click()
        expect(page).to_have_url(f"{house.gateway.url}/console/topics?order=lag")
        expect(page.get_by_role("rowheader", name="hers")).to_be_visible()
        expect(page.get_by_text("secret-plans")).to_have_count(0)
        expect(page.get_by_role("link", name="Access")).to_have_count(0)
        expect(page.get_by_text(ANN)).to_be_visible()
        (cookie,) = someone.context.cookies()
        name = cookie_name(house)
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["name"]) == (True, "Strict", name)
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_role("heading", name="Log in")).to_be_visible()
        assert someone.context.cookies() == []
        someone.go("/console/topics")
        expect(page.get_by_role("heading", name="Log in")).to_be_visible()
        someone.check_nothing_wrong()


def test_the_login_can_be_used_by_all(browser: Browser, house: House) -> None:
    with visitor(browser, house.gateway.url) as someone:
        page = someone.go("/console")
        someone.check("login")
        page.get_by_label("Name").fill("dora")
        page.get_by_label("Password").fill("wrong")
        page.get_by_role("button", name="Log in with the password").click()
        expect(page.get_by_role("alert")).to_contain_text("not right")
        someone.check("login-refused")
        page.get_by_label("Name").fill("dora")
        page.get_by_label("Password").fill("a long password")
        page.get_by_role("button", name="Log in with the password").click()
        expect(page.get_by_text("User:dora")).to_be_visible()


def test_a_session_may_do_what_its_key_may(house: House) -> None:
    client = logged_in(house, house.ann)
    assert client.get("/topics").json() == ["hers"]
    assert client.get("/topics/secret-plans").status_code == 403
    assert client.get("/console/access").status_code == 403


def test_a_change_needs_the_token_of_the_page(house: House) -> None:
    client = logged_in(house, house.ann)
    found = TOKEN.search(client.get("/console").text)
    assert found is not None
    body = {"records": [{"value": 1}]}
    assert client.post("/topics/hers", json=body).status_code == 401
    assert client.post("/topics/hers", json=body, headers={"X-CSRF-Token": "0" * 32}).status_code == 401
    assert client.post("/topics/hers", json=body, headers={"X-CSRF-Token": found[1]}).status_code == 200


def test_a_revoked_key_ends_its_sessions(house: House) -> None:
    key = house.root.key(ANN)
    wait_until(
        lambda: house.gateway.client.get("/topics", headers=bearer(key)).is_success, "the key is known"
    )
    client = logged_in(house, key)
    assert client.get("/topics").is_success
    house.root.revoke(key)
    wait_until(lambda: client.get("/topics").status_code == 401, "the session is over")
    answer = client.get("/console/topics", headers={"Accept": "text/html"})
    assert (answer.status_code, answer.headers["location"]) == (
        303,
        "/console/login?next=%2Fconsole%2Ftopics",
    )


def test_another_server_of_the_host_ends_no_session(house: House) -> None:
    client = logged_in(house, house.ann)
    name = cookie_name(house)
    mine = f"{name}={client.cookies[name]}"
    for cookies in (f"{name}=garbage; {mine}", f"{mine}; {name}=garbage", f"lakelog_00000000=x; {mine}"):
        answer = httpx.get(f"{house.gateway.url}/topics", headers={"Cookie": cookies})
        assert answer.json() == ["hers"], cookies
    assert httpx.get(f"{house.gateway.url}/topics", headers={"Cookie": f"{name}=garbage"}).status_code == 401


def test_a_form_of_another_origin_is_refused(house: House) -> None:
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}, {"Origin": "null"}):
        answer = httpx.post(f"{house.gateway.url}/console/login", data={"key": house.ann}, headers=headers)
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers
    own = {"Sec-Fetch-Site": "same-origin", "Origin": house.gateway.url}
    assert httpx.post(
        f"{house.gateway.url}/console/login", data={"key": house.ann}, headers=own
    ).has_redirect_location


@pytest.mark.parametrize(
    "body", [b"", b"key=", b"user=dora", b"key=%00%ff&key=2", b"\xff\xfe=1", b"a=1&" * 50]
)
def test_a_form_without_a_right_credential_begins_nothing(house: House, body: bytes) -> None:
    answer = httpx.post(f"{house.gateway.url}/console/login", content=body, headers=FORM)
    assert answer.status_code in (400, 401)
    assert "set-cookie" not in answer.headers
    assert "Traceback" not in answer.text


def test_a_form_of_any_size_is_refused(house: House) -> None:
    answer = httpx.post(f"{house.gateway.url}/console/login", content=b"key=" + b"x" * 100_000, headers=FORM)
    assert answer.status_code in (400, 413)


def test_pages_lead_to_the_login_and_programs_hear_401(house: House) -> None:
    for path in ("/console", "/console/topics/secret-plans", "/console/nothing"):
        page = httpx.get(house.gateway.url + path, headers={"Accept": "text/html,*/*"})
        assert page.status_code == 303, path
        assert page.headers["location"].startswith("/console/login")
        assert httpx.get(house.gateway.url + path).status_code == 401


@pytest.mark.parametrize(
    "path",
    [
        *(
            "https://evil.example",
            "//evil.example",
            "/\\evil.example",
            "/console/../topics\n",
            "javascript:1",
        ),
        *("/consoles", "", "/topics", "/console\\evil", "/console/\x00"),
        "/console/../../x",
        "/console/%2e%2e/x",
        "/console/..%2Fx",
        "/console//evil.example",
        "/console/topics/.?x=1",
    ],
)
def test_a_login_leads_to_no_other_place(path: str) -> None:
    assert local_path(path) == "/console"


def test_a_login_leads_back() -> None:
    for path in ("/console", "/console?x=1", "/console/topics/a?offset=5"):
        assert local_path(path) == path


def test_the_console_is_off_where_everybody_could_use_it(tmp_path: Path) -> None:
    with running_gateway(tmp_path / "data", insecure=True, host="0.0.0.0") as gateway:
        answer = gateway.client.get("/console")
        assert answer.status_code == 404
        assert "authentication_methods" in answer.text


def test_the_console_can_be_turned_off(tmp_path: Path) -> None:
    with running_gateway(tmp_path / "data", console_enable=False) as gateway:
        assert gateway.client.get("/console/topics").status_code == 404
