"""A topic's messages in a browser, with and without scripts."""

import json
import logging
import re
import threading
from base64 import b64encode
from collections.abc import Sequence
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from log_tables.clock import SystemClock
from tests.kit.browser import visitor
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.support import wait_until

_log = logging.getLogger(__name__)

JSON = {"Content-Type": "application/vnd.kafka.json.v2+json"}
BINARY = {"Content-Type": "application/vnd.kafka.binary.v2+json"}
HOSTILE = {
    "script": b"<script>document.title='run'</script>",
    "attribute": b'"><img src=x onerror="document.title=\'run\'">',
    "direction": "\u202eabc\u202c".encode(),
    "control": b"a\x00b\x1b[31mc\x07",
    "utf8": b"abc\xff\xfe\xc3",
    "template": b"{{ 7 * 7 }}{% raw %}",
    "deep": b"[" * 5_000 + b"]" * 5_000,
    "long": b"word " * 2_000_000,
}


def send(gateway: RunningGateway, topic: str, *records: dict[str, Any], binary: bool = False) -> None:
    answer = gateway.client.post(
        f"/topics/{topic}", json={"records": records}, headers=BINARY if binary else JSON
    )
    assert answer.is_success, answer.text


@pytest.fixture(scope="module")
def flights(gateway: RunningGateway) -> str:
    """A topic of 240 records in two partitions."""
    topic = gateway.create_topic("console-flights", partitions=2)
    for first in range(0, 240, 60):
        send(
            gateway,
            topic,
            *(
                {
                    "key": f"N{n % 6}",
                    "value": {"flight": n, "to": "ORD" if n % 7 else "SFO"},
                    "partition": n % 2,
                    "timestamp": 1_700_000_000_000 + n * 1_000,
                }
                for n in range(first, first + 60)
            ),
        )
    return topic


def offsets(page: Page) -> list[tuple[int, int]]:
    """(Partition, offset) of each row."""
    rows = page.locator("#rows tr:not(#none)").all()
    return [
        (int(row.locator("td").nth(0).inner_text()), int(row.locator("td").nth(1).inner_text()))
        for row in rows
    ]


def test_pages_lead_to_older_messages_and_back_without_scripts(
    browser: Browser, gateway: RunningGateway, flights: str
) -> None:
    with visitor(browser, gateway.url, scripts=False) as someone:
        page = someone.go(f"/console/topics/{flights}/messages")
        pages = [offsets(page)]
        while page.get_by_role("link", name="Older").count():
            page.get_by_role("link", name="Older").click()
            pages.append(offsets(page))
        for each in pages:
            times = [2 * offset + partition for partition, offset in each]
            assert times == sorted(times, reverse=True)
            assert {partition for partition, _ in each} == {0, 1}
        assert sorted(row for each in pages for row in each) == [(n, m) for n in (0, 1) for m in range(120)]
        page.get_by_role("link", name="Newer", exact=True).click()
        assert {*offsets(page)} & {*pages[-2]}
        expect(page.get_by_text("Live", exact=True)).to_be_hidden()


def test_the_page_says_how_its_records_were_chosen(gateway: RunningGateway, flights: str) -> None:
    def said(**query: str) -> str:
        text = gateway.client.get(f"/console/topics/{flights}/messages", params=query).text
        found = re.search(r'id="choice">(.*?)<', text)
        return "" if found is None else found[1]

    newest = re.fullmatch(
        r"Of 2 partitions together, the records appended last: (\d+) of partition 0, (\d+) of partition 1\. "
        r"By record time, the newest first\.",
        said(),
    )
    assert newest is not None
    assert sum(map(int, newest.groups())) == 50
    assert min(map(int, newest.groups())) > 10
    assert "appended first" in said(start="oldest")
    assert "of the earliest record times" in said(start="time", time="1700000000000")
    assert said(partition="1") == "In the order of offsets, the newest first."


def test_the_form_finds_what_plain_python_finds(
    browser: Browser, gateway: RunningGateway, flights: str
) -> None:
    records = [(n % 2, n // 2, f"N{n % 6}", n % 7 == 0) for n in range(240)]
    with visitor(browser, gateway.url, scripts=False) as someone:
        page = someone.go(f"/console/topics/{flights}/messages")
        page.get_by_label("Partitions").fill("0")
        page.get_by_label("From").select_option("oldest")
        page.get_by_label("Key is").fill("N4")
        page.get_by_label("Key or value contains").fill("SFO")
        page.get_by_role("button", name="Show").click()
        assert offsets(page) == [row[:2] for row in records if row[0] == 0 and row[2:] == ("N4", True)]
        expect(page.locator(".scanned")).to_contain_text("Scanned 120 of 120 records")
        page.get_by_label("Partitions").fill("")
        page.get_by_label("Key is").fill("")
        page.get_by_label("Key or value contains").fill("")
        page.get_by_label("From").select_option("time")
        page.get_by_label("Time").fill(str(1_700_000_000_000 + 230 * 1_000))
        page.get_by_role("button", name="Show").click()
        assert offsets(page) == [row[:2] for row in records[230:]]
        page.get_by_label("From").select_option("offset")
        page.get_by_label("Offset").fill("115")
        page.get_by_role("button", name="Show").click()
        assert offsets(page) == [row[:2] for row in records[230:]]


def test_a_live_page_shows_what_comes_and_can_be_paused(browser: Browser, gateway: RunningGateway) -> None:
    topic = gateway.create_topic("console-live", partitions=2)
    with visitor(browser, gateway.url) as someone:
        page = someone.go(f"/console/topics/{topic}/messages")
        page.get_by_role("button", name="Live").click()
        send(gateway, topic, {"value": "<img src=x onerror=alert(1)>\u202e\U000e0041", "partition": 1})
        shown = "<img src=x onerror=alert(1)>\\u202e\\U000e0041"
        expect(page.locator("#rows tr").first).to_contain_text(shown)
        someone.check("messages-live")
        send(gateway, topic, *({"key": "a", "value": {"n": n}, "partition": n % 2} for n in range(999)))
        said = page.locator("[data-said]")
        expect(said).to_contain_text("1,000 arrived")
        expect(page.locator("#rows tr")).to_have_count(200)
        page.get_by_role("button", name="Pause").click()
        send(gateway, topic, {"key": "a", "value": "while it pauses", "partition": 0})
        page.get_by_role("button", name="Go on").click()
        expect(page.locator("#rows tr").first).to_contain_text("while it pauses")
        expect(said).to_contain_text("1,001 arrived")
        someone.check_nothing_wrong()


def test_a_live_page_with_a_key_shows_only_its_records(browser: Browser, gateway: RunningGateway) -> None:
    topic = gateway.create_topic("console-live-key")
    with visitor(browser, gateway.url) as someone:
        for key, key_format in (("b", "text"), ('"b"', "json")):
            page = someone.go(
                f"/console/topics/{topic}/messages?start=newest&key={key}&key_format={key_format}"
            )
            shown = page.locator("#rows tr:not(#none)")
            before = shown.count()
            page.get_by_role("button", name="Live").click()
            send(gateway, topic, *({"key": "abc"[n % 3], "value": n} for n in range(30)))
            expect(shown).to_have_count(before + 10)
        someone.check_nothing_wrong()


def test_hostile_values_are_shown_as_text(browser: Browser, gateway: RunningGateway) -> None:
    topic = gateway.create_topic("console-hostile", max_message_bytes="20000000")
    for name, value in HOSTILE.items():
        record = {
            "key": b64encode(name.encode()).decode(),
            "value": b64encode(value).decode(),
            "headers": [{"key": "<b>\u202e", "value": b64encode(value[:50]).decode()}],
        }
        send(gateway, topic, record, binary=True)
    send(gateway, topic, {"key": None, "value": None}, {"value": ""}, binary=True)
    with visitor(browser, gateway.url) as someone:
        page = someone.go(f"/console/topics/{topic}/messages?start=oldest")
        assert len(page.content()) < 300_000
        rows = page.locator("#rows tr")
        expect(rows).to_have_count(len(HOSTILE) + 2)
        for row in rows.locator("details > summary").all():
            row.click()
        expect(rows.nth(0)).to_contain_text("<script>document.title='run'</script>")
        expect(rows.nth(2)).to_contain_text("\\u202eabc\\u202c")
        expect(rows.nth(3)).to_contain_text("a\\x00b\\x1b[31mc\\x07")
        expect(rows.nth(4)).to_contain_text("61 62 63 ff fe c3")
        expect(rows.nth(7)).to_contain_text("9.5 MiB")
        expect(rows.nth(8).locator("td").nth(4)).to_have_text("null")
        expect(rows.nth(9).locator("td").nth(4)).to_have_text("empty")
        assert "run" not in page.title()
        someone.check("messages-hostile")
        page = someone.go(f"/console/topics/{topic}/messages?partition=0&offset=7")
        assert len(page.content()) < 200_000
        with page.expect_download() as download:
            page.get_by_role("link", name="Download the value").click()
        assert Path(download.value.path()).read_bytes() == HOSTILE["long"]
        page = someone.go(f"/console/topics/{topic}/messages?partition=0&offset=4")
        someone.check("message")


def test_one_message_is_shown_whole_with_ways_to_its_neighbours(
    browser: Browser, gateway: RunningGateway, flights: str
) -> None:
    with visitor(browser, gateway.url, scripts=False) as someone:
        page = someone.go(f"/console/topics/{flights}/messages?partition=1&offset=5")
        shown = page.locator("section", has_text="Value").locator("pre").inner_text()
        assert json.loads(unescape(shown)) == {"flight": 11, "to": "ORD"}
        page.get_by_role("link", name="Next offset").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Partition 1, offset 6")
        page = someone.go(f"/console/topics/{flights}/messages?partition=1&offset=120")
        expect(page.locator(".said")).to_contain_text("There is no such record yet")


def test_the_python_that_is_copied_prints_what_is_seen(
    gateway: RunningGateway, flights: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = f"/console/topics/{flights}/messages"
    query = {"partition": "1", "start": "offset", "offset": "100", "key": "N3", "text": "ORD"}
    page = gateway.client.get(path, params=query)
    programs = [unescape(each) for each in re.findall(r"<pre[^>]*>(.*?)</pre>", page.text, re.DOTALL)]
    [program] = [each for each in programs if each.startswith("from lakelog")]
    program = re.sub(r"Client\('.*?'\)", f"Client({gateway.url!r})", program)
    exec(compile(program, "copied", "exec"), {})
    printed = [int(line.split()[0]) for line in capsys.readouterr().out.splitlines()]
    assert printed == [n // 2 for n in range(1, 240, 2) if n >= 201 and n % 6 == 3 and n % 7]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"partition": "2"}, "there is no partition 2"),
        ({"start": "offset", "offset": "x"}, "offset"),
        ({"start": "time", "time": "yesterday"}, "ISO-8601"),
        ({"key": "N1", "key_format": "json"}, "not JSON"),
        ({"after": "0:x"}, "load the messages again"),
        ({"colour": "red"}, "not known"),
        ({"text": "x" * 2_000}, "at most 1000"),
    ],
)
def test_a_wrong_form_is_told_so(
    gateway: RunningGateway, flights: str, query: dict[str, str], said: str
) -> None:
    answer = gateway.client.get(f"/console/topics/{flights}/messages", params=query)
    assert answer.status_code == 400
    assert said in unescape(answer.text)


def test_a_value_is_a_file_that_no_browser_runs(gateway: RunningGateway, flights: str) -> None:
    answer = gateway.client.get(f"/console/topics/{flights}/value?partition=0&offset=1")
    assert answer.json() == {"flight": 2, "to": "ORD"}
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == f'attachment; filename="{flights}-0-1.value"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert gateway.client.get(f"/console/topics/{flights}/value?partition=0&offset=1000").status_code == 404


@pytest.mark.torture
def test_ten_minutes_of_5000_records_a_second_grow_neither_gateway_nor_page(
    browser: Browser, tmp_path: Path
) -> None:
    seconds, a_second, clock = 600, 5_000, SystemClock()
    with running_gateway(tmp_path / "data", linger_ms=1) as gateway, visitor(browser, gateway.url) as someone:
        gateway.create_topic("t", retention_bytes="50000000")
        ended, sent = threading.Event(), list[int]()

        def produce() -> None:
            begin = clock.monotonic()
            for number in range(seconds * 10):
                gateway.produce("t", *[{"n": number, "s": "x" * 100}] * (a_second // 10), partition=0)
                sent.append(number)
                ended.wait(max(0.0, begin + number / 10 - clock.monotonic()))

        page = someone.go("/console/topics/t/messages")
        page.get_by_role("button", name="Live").click()
        heap = someone.context.new_cdp_session(page)
        producer = threading.Thread(target=produce)
        producer.start()
        levels = []
        for minute in range(1, seconds // 60 + 1):
            wait_until(partial(is_sent, sent, 600 * minute), f"minute {minute} is over", timeout_s=300)
            heap.send("HeapProfiler.collectGarbage")
            used: int = page.evaluate("performance.memory.usedJSHeapSize")
            assert 0 < page.locator("#rows tr").count() <= 200
            levels.append((resident_bytes(gateway), used))
        producer.join()
        _log.info("bytes of the gateway and of the page, minute by minute: %s", levels)
        assert max(gateway_bytes for gateway_bytes, _ in levels) - levels[1][0] < 48_000_000, levels
        assert max(page_bytes for _, page_bytes in levels) - levels[1][1] < 16_000_000, levels
        someone.check_nothing_wrong()


def is_sent(sent: Sequence[int], requests: int) -> bool:
    return len(sent) >= requests


def resident_bytes(gateway: RunningGateway) -> int:
    status = Path(f"/proc/{gateway.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1_024
