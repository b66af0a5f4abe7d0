"""SQL in the console: only what its reader may see, as lines, as a page without scripts, and with them."""

import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

import httpx
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Browser, expect

from log_tables.cluster.access_record import Quota, quota_record
from log_tables.cluster.acl import Operation, ResourceType
from tests.kit.audits import wait_for_audit
from tests.kit.browser import visitor
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.secured import Secured, acl, bearer
from tests.kit.support import wait_until

ANN = "User:ann"
HOSTILE = ["<script>document.title = 'owned'</script>", "\u202eturned\u202c", "a\x00b\x1b[31m", "x" * 100_000]
LONG = (
    "select count(*) from generate_series(1, 10000000) a, generate_series(1, 10000000) b "
    "where (a.value * b.value) % 7 = 3"
)


@dataclass
class Answer:
    """The answer of `POST /console/sql`."""

    status: int
    text: str

    @property
    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.text.splitlines()]

    @property
    def rows(self) -> list[list[str]]:
        found = [line["rows"] for line in self.lines if "rows" in line]
        return [row for part in found if isinstance(part, list) for row in part]

    @property
    def message(self) -> str:
        return str(json.loads(self.text)["message"])


def ask(gateway: RunningGateway, sql: str, key: str = "") -> Answer:
    headers = bearer(key) if key else {}
    answer = httpx.post(f"{gateway.url}/console/sql", json={"sql": sql}, headers=headers, timeout=180)
    return Answer(answer.status_code, answer.text)


@dataclass
class World:
    """A secured gateway, with one who may do all, and ann, who may read one topic and describe another."""

    gateway: RunningGateway
    root: Secured
    admin: str
    ann: str


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    data = tmp_path_factory.mktemp("secured") / "data"
    root = Secured(data)
    root.allow(
        acl(ANN, Operation.READ, ResourceType.TOPIC, "open"),
        acl(ANN, Operation.DESCRIBE, ResourceType.TOPIC, "seen"),
        acl(ANN, Operation.DESCRIBE, ResourceType.GROUP, "ours"),
    )
    admin, ann = root.key(), root.key(ANN)
    with running_gateway(data, authentication_methods="api-key", linger_ms=0) as gateway:
        at = gateway.client
        at.headers.update(bearer(admin))
        for name in ("open", "seen", "hidden"):
            gateway.create_topic(name)
            assert gateway.produce(name, {"secret": name}).is_success
        for group in ("ours", "theirs"):
            offsets = [{"topic": name, "partition": 0, "offset": 1} for name in ("open", "seen", "hidden")]
            assert at.put(f"/consumers/{group}/offsets", json={"offsets": offsets}).is_success
        yield World(gateway, root, admin, ann)


def test_a_query_sees_the_topics_that_its_principal_may_read(world: World) -> None:
    assert ask(world.gateway, "select value_text from open", world.ann).rows == [['{"secret":"open"}']]
    assert ask(world.gateway, "select value_text from hidden", world.admin).rows == [['{"secret":"hidden"}']]
    missing = ask(world.gateway, "select * from nothing", world.ann)
    for name in ("hidden", "seen", "__audit", "audit", "maintenance_runs", "mirror_gaps"):
        denied = ask(world.gateway, f'select * from "{name}"', world.ann)
        assert (denied.status, denied.message) == (400, missing.message.replace("nothing", name))
    assert [row[0] for row in ask(world.gateway, "show tables", world.ann).rows] == [
        "consumer_lag",
        "consumer_offsets",
        "open",
        "open_json",
    ]


def test_rows_about_groups_are_those_that_may_be_described(world: World) -> None:
    sql = 'select "group", topic from consumer_lag order by 1, 2'
    assert ask(world.gateway, sql, world.ann).rows == [["ours", "open"], ["ours", "seen"]]
    assert len(ask(world.gateway, sql, world.admin).rows) == 6


def test_reading_a_topic_by_sql_is_audited_as_a_fetch_is(world: World) -> None:
    assert ask(world.gateway, "select * from open", world.ann).status == 200
    events = wait_for_audit(world.gateway.data, f"kind = 'access' and principal = '{ANN}'")
    assert {each["resource_name"] for each in events} == {"open"}
    assert ask(world.gateway, "select 1 from audit limit 1", world.admin).rows == [["1"]]


def test_nobody_asks_without_a_credential_or_by_a_form(world: World) -> None:
    url = f"{world.gateway.url}/console/sql"
    assert httpx.post(url, json={"sql": "select 1"}).status_code == 401
    form = httpx.post(url, data={"sql": "select 1"}, headers=bearer(world.ann))
    assert form.status_code == 415
    session = httpx.post(
        f"{world.gateway.url}/console/login", data={"key": world.ann}, headers={"Origin": world.gateway.url}
    )
    with httpx.Client(cookies=session.cookies) as browser:
        assert browser.get(f"{url}?query=select%201").status_code == 200
        assert browser.post(url, json={"sql": "select 1"}).json()["error_code"] == 40101
        found = re.search(r'name="csrf-token" content="(\w+)"', browser.get(url).text)
        assert found is not None
        sent = browser.post(url, json={"sql": "select 1"}, headers={"X-CSRF-Token": found[1]})
        assert '{"rows":[["1"]]}' in sent.text


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"sql": ""},
        {"sql": "select 1", "rows": 0},
        {"sql": "select 1", "rows": 10**6},
        {"sql": "x", "y": 1},
    ],
)
def test_a_wrong_body_is_refused(world: World, body: dict[str, object]) -> None:
    answer = httpx.post(f"{world.gateway.url}/console/sql", json=body, headers=bearer(world.ann))
    assert answer.status_code == 422


def test_an_answer_counts_to_the_quota_of_what_its_principal_reads(world: World) -> None:
    key = world.root.key("User:bob")
    quota = quota_record("User:bob", Quota(consumer_byte_rate=100))
    world.root.cluster.metadata_log.change_access(lambda _: [quota])
    wait_until(
        lambda: ask(world.gateway, "select repeat('x', 900) from generate_series(1, 9)", key).status == 429,
        "the quota is known, and used up by the answer before",
    )


@pytest.fixture(scope="module")
def gateway_with_records(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with running_gateway(tmp_path_factory.mktemp("sql"), linger_ms=0) as gateway:
        gateway.create_topic("flights", partitions=2)
        values = [{"dest": ("SFO", "JFK")[n % 2], "delay": n} for n in range(300)]
        assert gateway.produce("flights", *values, partition=0).is_success
        gateway.create_topic("hostile")
        assert gateway.produce("hostile", *HOSTILE).is_success
        yield gateway


def test_an_answer_comes_as_lines_of_json(gateway_with_records: RunningGateway) -> None:
    found = ask(gateway_with_records, 'select "offset", value_text from flights order by 1')
    assert "columns" in found.lines[0]
    assert len(found.rows) == 300
    assert found.lines[-1]["done"] == {
        "rows": 300,
        "cut": "",
        "scans": [{"topic": "flights", "read": 1, "files": 1}],
    }


@pytest.mark.parametrize("form", ["csv", "ndjson", "parquet"])
def test_an_answer_is_a_file_with_all_of_its_rows(gateway_with_records: RunningGateway, form: str) -> None:
    sql = "select value as n, value * 0.5 as half, '' as e, null as x from generate_series(1, 1500)"
    answer = gateway_with_records.client.get("/console/sql/file", params={"query": sql, "format": form})
    assert answer.headers["content-disposition"] == f'attachment; filename="answer.{form}"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    if form == "csv":
        lines = answer.text.splitlines()
        assert (len(lines), lines[:2]) == (1501, ['"n","half","e","x"', '1,0.5,"",'])
    elif form == "ndjson":
        rows = [json.loads(line) for line in answer.text.splitlines()]
        assert (len(rows), rows[0]) == (1500, {"n": 1, "half": 0.5, "e": "", "x": None})
    else:
        table = pq.read_table(io.BytesIO(answer.content))
        assert (table.num_rows, str(table.schema.field("half").type)) == (1500, "double")


def test_an_answer_that_cannot_be_a_file_is_a_page_that_says_why(
    gateway_with_records: RunningGateway,
) -> None:
    def asked(sql: str, **headers: str) -> httpx.Response:
        query = {"query": sql, "format": "csv"}
        return gateway_with_records.client.get("/console/sql/file", params=query, headers=headers)

    wrong = asked("select nothing from flights")
    assert (wrong.status_code, "No field named nothing" in wrong.text) == (400, True)
    foreign = asked("select 40 + 2", **{"Sec-Fetch-Site": "cross-site"})
    assert (foreign.status_code, foreign.headers["location"]) == (303, "/console/sql?query=select+40+%2B+2")


def test_a_file_has_what_its_principal_may_read(world: World) -> None:
    url = f"{world.gateway.url}/console/sql/file"
    for name, status in (("open", 200), ("hidden", 400)):
        query = {"query": f"select value_text from {name}", "format": "ndjson"}
        answer = httpx.get(url, params=query, headers=bearer(world.ann), timeout=60)
        assert answer.status_code == status
    assert httpx.get(url, params={"query": "select 1", "format": "csv"}).status_code == 401


def test_names_are_completed_and_a_wrong_one_is_mended(
    gateway_with_records: RunningGateway, browser: Browser
) -> None:
    with visitor(browser, gateway_with_records.url) as someone:
        page = someone.go("/console/sql")
        query, names = page.get_by_label("Query"), page.get_by_role("option")
        query.fill("")
        query.press_sequentially("select count(*) from fli")
        expect(names).to_have_text(["flights", "flights_json"])
        expect(names.first).to_have_attribute("aria-selected", "true")
        query.press("ArrowDown")
        query.press("Tab")
        expect(query).to_have_value("select count(*) from flights_json")
        query.press_sequentially(" where del")
        expect(names).to_have_text(["delay"])  # a field of JSON
        someone.check("sql-completion")
        query.focus()
        query.press_sequentially("a")
        expect(names).to_have_text(["delay"])
        query.press("Escape")
        expect(names).to_have_count(0)
        query.fill("select dely, dest from flights_json limit 3")
        query.press("Control+Enter")
        expect(page.get_by_role("alert")).to_contain_text("did you mean delay?")
        page.get_by_role("button", name="Use delay").click()
        expect(query).to_have_value("select delay, dest from flights_json limit 3")
        expect(page.locator("table.rows tbody tr")).to_have_count(3)
        someone.check_nothing_wrong()


def test_numbers_have_thousands_that_are_not_copied_and_few_decimals(
    gateway_with_records: RunningGateway, browser: Browser
) -> None:
    sql = "select 1234567 as n, -98765.25 as d, 1.0 / 3 as f, cast(1 as double) / 3000 as s, '1234' as t"
    for scripts in (True, False):
        with visitor(browser, gateway_with_records.url, scripts=scripts) as someone:
            page = someone.go(f"/console/sql?query={quote(sql)}")
            if scripts:
                page.get_by_role("button", name="Run").click()
            cells = page.locator("table.rows tbody td")
            shown = ["1234567", "-98765.25", "0.333333", "0.0003333333333333333", "1234"]
            expect(cells).to_have_text(shown)
            expect(cells.nth(2)).to_have_attribute("title", "0.3333333333333333")
            expect(cells.nth(0).locator(".digits")).to_have_text(["1", "234", "567"])
            expect(cells.nth(1).locator(".digits")).to_have_text(["-98", "765.25"])
            expect(cells.nth(4).locator(".digits")).to_have_count(0)


def test_a_page_of_another_origin_does_not_run_a_query(gateway_with_records: RunningGateway) -> None:
    path = f"{gateway_with_records.url}/console/sql?query={quote('select 40 + 2 as made')}"
    assert ">42<" in httpx.get(path, timeout=60).text
    foreign = httpx.get(path, headers={"Sec-Fetch-Site": "cross-site"}, timeout=60).text
    assert ">42<" not in foreign
    assert "select 40 + 2" in foreign


def test_without_scripts_a_page_has_the_answer(
    gateway_with_records: RunningGateway, browser: Browser
) -> None:
    with visitor(browser, gateway_with_records.url, scripts=False) as someone:
        page = someone.go("/console/sql")
        page.get_by_label("Query").fill(
            "select dest, count(*) as n from flights_json group by dest order by dest"
        )
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_role("row")).to_have_text(["destn", "JFK150", "SFO150"])
        expect(page.locator("output")).to_have_text("2 rows")
        page.get_by_label("Query").fill("select value_text from hostile")
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_role("cell").nth(1)).to_contain_text("\\u202eturned\\u202c")
        expect(page.get_by_role("cell").nth(3)).to_contain_text("of 100,002 characters")
        page.get_by_label("Query").fill("select nothing from flights")
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_role("alert")).to_contain_text("No field named nothing")
        someone.check_nothing_wrong()


def test_with_scripts_a_query_runs_is_remembered_and_drawn(
    gateway_with_records: RunningGateway, browser: Browser
) -> None:
    with visitor(browser, gateway_with_records.url) as someone:
        page = someone.go("/console/sql")
        query = page.get_by_label("Query")
        query.fill("select value_text from hostile")
        query.press("Control+Enter")
        expect(page.get_by_role("cell")).to_have_count(4)
        expect(page.get_by_role("cell").first).to_have_text(f'"{HOSTILE[0]}"')
        expect(page).to_have_title("SQL · lakelog")
        query.fill("select dest, avg(delay) as delay from flights_json group by dest order by dest")
        page.get_by_role("button", name="Run").click()
        expect(page.locator(".bars li")).to_have_text(["JFK150.0", "SFO149.0"])
        page.get_by_text("History in this browser").click()
        expect(page.locator("#history-list li")).to_have_count(2)
        page.get_by_text("flights", exact=True).click()
        someone.check("sql")
        query.fill('select "offset", delay from flights_json order by 1')
        query.press("Control+Enter")
        expect(page.locator(".uplot")).to_be_visible()
        curve = page.get_by_role("slider", name="delay")
        curve.press("Home")
        expect(curve).to_have_attribute("aria-valuetext", "0: 0")
        curve.press("ArrowRight")
        expect(curve.locator(".u-legend")).to_contain_text("delay1")
        expect(page.locator("output")).to_contain_text("300 rows in")
        page.reload()
        expect(page.get_by_role("row")).to_have_count(201)
        page.get_by_text("History in this browser").click()
        page.get_by_role("button", name="select value_text from hostile").click()
        expect(query).to_have_value("select value_text from hostile")
        page.get_by_role("button", name="Clear the history").click()
        expect(page.get_by_text("History in this browser")).to_be_hidden()
        someone.check_nothing_wrong()


def test_a_query_is_cancelled_and_an_error_is_shown(
    gateway_with_records: RunningGateway, browser: Browser
) -> None:
    with visitor(browser, gateway_with_records.url) as someone:
        page = someone.go("/console/sql")
        query = page.get_by_label("Query")
        query.fill(LONG)
        query.press("Control+Enter")
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator("output")).to_contain_text("Cancelled after")
        query.fill("select value from nothing")
        query.press("Control+Enter")
        expect(page.get_by_role("alert")).to_contain_text("there is no topic 'nothing'")
        expect(page.get_by_role("button", name="Cancel")).to_be_hidden()
        someone.check("sql-failed")
