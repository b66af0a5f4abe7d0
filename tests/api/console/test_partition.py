"""The pages of a partition: its segments drawn, its commits, a record's file, plans and fsck."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Browser, expect

from log_tables.clock import SystemClock
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.cluster import Cluster
from log_tables.layout import partition_directory, topic_directory
from log_tables.partition.partition import Partition
from log_tables.segments.rewrite import commit_merge, merge
from log_tables.store.store import open_store
from tests.kit.browser import visitor
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.maintenance import errors, run
from tests.kit.secured import Secured, acl, bearer

TOPIC = "flights"
HERE = f"/console/topics/{TOPIC}/partitions/0"
HTML = {"Accept": "text/html"}


def partition_of(gateway: RunningGateway, topic: str = TOPIC) -> Partition:
    """The partition as another process opens it."""
    directory = partition_directory(topic_directory(topic), 0)
    return Partition(open_store(gateway.data), directory, SystemClock())


def commit_group(gateway: RunningGateway, group: str, offset: int) -> None:
    body = {"offsets": [{"topic": TOPIC, "partition": 0, "offset": offset}]}
    answer = gateway.client.put(
        f"/consumers/{group}/offsets", json=body, headers={"Content-Type": "application/vnd.kafka.v2+json"}
    )
    assert answer.is_success, answer.text


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A topic of eight commits, four of them merged, without its first record; and two groups."""
    with running_gateway(tmp_path_factory.mktemp("partition"), linger_ms=0) as running:
        running.create_topic(TOPIC, merge_min_age_ms="0")
        for number in range(8):
            running.produce(TOPIC, *({"n": number, "m": n} for n in range(5 + number)), partition=0)
        log = partition_of(running)
        inputs = log.snapshot.segments[:4]
        made = merge(log.table.store, log.directory, inputs, "zstd", log.clock)
        assert commit_merge(log.table, inputs, made)
        running.client.delete(f"/topics/{TOPIC}/partitions/0/records", params={"before": 1})
        commit_group(running, "readers", 7)
        commit_group(running, "spark-query", 30)
        running.create_topic("--help")
        yield running


def text_of(gateway: RunningGateway, path: str, **query: int) -> str:
    answer = gateway.client.get(path, params=query, headers=HTML)
    assert answer.status_code == 200, answer.text
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.text))


def test_a_partition_is_drawn_with_its_groups(browser: Browser, gateway: RunningGateway) -> None:
    with visitor(browser, gateway.url) as someone:
        page = someone.go(HERE)
        strip = page.locator("svg.strip")
        expect(strip.locator("a")).to_have_count(5)
        expect(strip.locator("rect.merged")).to_have_count(1)
        for label in ("log start 1", "high watermark 68", "readers 7", "spark-query 30"):
            expect(strip.locator("text").get_by_text(label)).to_be_visible()
        groups = page.get_by_role("table", name="Groups that have committed")
        expect(groups.get_by_role("row", name="readers")).to_contain_text("a tool")
        someone.check("partition")
        strip.locator("a").nth(1).click()
        expect(page.get_by_role("heading", name="Segment 26 to 34")).to_be_visible()
        someone.check("partition-segment")


def test_what_maintenance_would_do_is_put_into_the_page(browser: Browser, gateway: RunningGateway) -> None:
    with visitor(browser, gateway.url) as someone:
        page = someone.go(HERE)
        page.get_by_role("link", name="What would maintenance do?").click()
        steps = page.get_by_role("table", name="Steps of the next run")
        expect(steps.get_by_role("row", name="segment_compaction")).to_contain_text("merge 5 segments")
        expect(page.locator("svg.strip rect.bracket.segment_compaction")).to_have_count(1)
        someone.check("partition-plan")
    with visitor(browser, gateway.url, scripts=False) as reader:
        page = reader.go(HERE)
        page.get_by_role("link", name="What would maintenance do?").click()
        expect(page.locator("svg.strip rect.bracket.segment_compaction")).to_have_count(1)
        page.get_by_label("From offset").fill("40")
        page.get_by_role("button", name="Zoom").click()
        expect(page.get_by_role("heading", name="Segments from offset 35")).to_be_visible()
        expect(page.locator("svg.strip a")).to_have_count(3)


def test_commits_are_drawn_over_time_and_listed(browser: Browser, gateway: RunningGateway) -> None:
    with visitor(browser, gateway.url) as someone:
        page = someone.go(f"{HERE}/commits")
        rows = page.get_by_role("table", name="Commits, newest first")
        expect(rows.get_by_role("row", name="OPTIMIZE")).to_contain_text("+1 −4")
        expect(rows.get_by_role("row", name="CLAIM")).to_contain_text("gateway 1")
        expect(page.locator("svg.strip text").get_by_text("WRITE (8)")).to_be_visible()
        someone.check("partition-commits")


def test_fsck_finds_nothing_and_then_a_damage(browser: Browser, gateway: RunningGateway) -> None:
    with visitor(browser, gateway.url) as someone:
        gateway.create_topic("damaged")
        gateway.produce("damaged", *range(10), partition=0)
        page = someone.go("/console/topics/damaged/partitions/0")
        page.get_by_role("link", name="Check with fsck").click()
        expect(page.get_by_text("Nothing is wrong.")).to_be_visible()
        page.get_by_text("The same in a shell").click()
        expect(page.get_by_role("button", name="Copy", exact=True)).to_be_visible()
        someone.check("fsck-sound")
        (segment,) = (Path(gateway.data) / "topics/damaged/partition=0").glob("*.parquet")
        data = bytearray(segment.read_bytes())
        data[len(data) // 2] ^= 0xFF
        segment.write_bytes(data)
        page = someone.go("/console/topics/damaged/partitions/0/fsck")
        expect(page.get_by_role("alert")).to_contain_text("1 problem")
        expect(page.locator("ul.findings")).to_contain_text(segment.name)
        someone.check("fsck-damage")


def test_fsck_is_for_a_table_that_cannot_be_read(gateway: RunningGateway) -> None:
    gateway.create_topic("unreadable")
    gateway.produce("unreadable", 1, partition=0)
    log = Path(gateway.data) / "topics/unreadable/partition=0/_delta_log"
    newest = max(int(each.stem) for each in log.glob("*.json"))
    (log / f"{newest + 1:020}.json").write_text("no commit")
    assert gateway.client.get("/console/topics/unreadable/partitions/0").status_code == 500
    said = text_of(gateway, "/console/topics/unreadable/partitions/0/fsck")
    assert "1 problem" in said
    assert f"{newest + 1:020}.json" in said
    for path in ("unreadable/partitions/1", "unreadable/partitions/-1", "no-topic/partitions/0"):
        assert gateway.client.get(f"/console/topics/{path}/fsck").status_code == 404


def test_a_record_is_found_in_its_commit_its_file_and_its_row_group(gateway: RunningGateway) -> None:
    files = Path(gateway.data) / "topics" / TOPIC / "partition=0"
    for offset in (1, 12, 26, 67):
        said = text_of(gateway, HERE, offset=offset)
        came = re.search(r"Came in the file (\S+)", said)
        held = re.search(r"Is in the file (\S+) ?, row group (\d+) of (\d+)", said)
        assert came is not None
        assert held is not None
        file = pq.ParquetFile(files / held[1])
        assert file.metadata.num_row_groups == int(held[3])
        group = file.read_row_group(int(held[2]) - 1, columns=["offset"])
        assert offset in group.column("offset").to_pylist()
        assert offset in pq.read_table(files / came[1], columns=["offset"]).column("offset").to_pylist()
        assert ("replaced since" in said) == (came[1] != held[1]) == (offset < 26)


def test_an_offset_without_a_record_says_why(gateway: RunningGateway) -> None:
    assert "the record at offset 0 is deleted; the log begins at 1" in text_of(gateway, HERE, offset=0)
    assert "no record at offset 68 yet; the next record gets 68" in text_of(gateway, HERE, offset=68)


def test_an_empty_partition_and_one_with_a_name_like_an_option(gateway: RunningGateway) -> None:
    said = text_of(gateway, "/console/topics/--help/partitions/0", plan=1)
    assert "There is no record in this partition yet" in said
    assert "would change nothing here now" in said
    assert "Nothing is wrong" in text_of(gateway, "/console/topics/--help/partitions/0/fsck")


def test_a_part_in_the_remote_root_is_drawn_and_missed_while_that_is_away(tmp_path: Path) -> None:
    data, remote = tmp_path / "data", tmp_path / "remote"
    remote.mkdir()
    with running_gateway(data, linger_ms=0, remote_root=remote) as gateway:
        gateway.create_topic(
            TOPIC,
            remote_storage_enable="true",
            local_retention_bytes="1",
            merge_min_age_ms="0",
            segment_bytes="1024",
        )
        for _ in range(4):
            text = SystemClock().random_hex(2_000)  # too large to be merged
            gateway.produce(TOPIC, *range(9), text, partition=0)
        assert errors(run(Cluster.open(open_store(data), create=False))) == {}
        page = gateway.client.get(HERE, headers=HTML).text
        assert page.count('<rect class="tiered"') == 4  # three segments, and the legend
        assert "Tiered up to" in text_of(gateway, HERE)
        said = text_of(gateway, HERE, offset=5)
        assert re.search(r"Is in the file \S+ remote root , row group 1 of 1", said)
        remote.rename(tmp_path / "away")
        assert "Its file cannot be read" in text_of(gateway, HERE, offset=5)
    with running_gateway(data) as another:
        said = text_of(another, HERE, offset=5)
        assert "The part in the remote root cannot be shown: " in said
        assert "Is in the file in the remote root, which cannot be read now" in said
        assert str(tmp_path) not in said


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/console/topics/gone/partitions/0", 404, "there is no topic"),
        (f"/console/topics/{TOPIC}/partitions/7", 404, "has no partition 7"),
        ("/console/topics/__consumer_offsets/partitions/0", 400, "internal to lakelog"),
        (f"{HERE}?offset=-1", 400, "correct the address"),
        (f"{HERE}?plan=2", 400, "correct the address"),
        (f"{HERE}?from=x", 400, "not a whole number"),
    ],
)
def test_what_is_not_there_is_a_page_that_says_so(
    gateway: RunningGateway, path: str, status: int, says: str
) -> None:
    answer = gateway.client.get(path, headers=HTML)
    assert (answer.status_code, says in answer.text) == (status, True)


def test_nobody_sees_groups_or_starts_processes_without_the_right(tmp_path: Path) -> None:
    secured = Secured(tmp_path / "data")
    admin, reader = secured.key(), secured.key("User:reader")
    secured.allow(acl("User:reader", Operation.DESCRIBE, ResourceType.TOPIC, TOPIC))
    secured.secure()
    with running_gateway(tmp_path / "data", authentication_methods="api-key", linger_ms=0) as gateway:
        gateway.client.headers.update(bearer(admin))
        gateway.create_topic(TOPIC)
        gateway.create_topic("hidden")
        gateway.produce(TOPIC, *range(5), partition=0)
        commit_group(gateway, "secret-group", 3)
        assert "secret-group" in text_of(gateway, HERE)
        with httpx.Client(base_url=gateway.url, headers={**HTML, **bearer(reader)}, timeout=30) as client:
            page = client.get(HERE)
            assert page.status_code == 200
            assert "secret-group" not in page.text
            assert "plan=1" not in page.text
            assert gateway.url not in client.get(f"{HERE}/commits").text
            for path in (f"{HERE}?plan=1", f"{HERE}/fsck", "/console/topics/hidden/partitions/0"):
                refused = client.get(path)
                assert refused.status_code == 403
                assert "secret-group" not in refused.text
            assert client.get("/console/maintenance").status_code == 403
