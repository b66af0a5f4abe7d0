"""`lakelog maintain`: what it takes, prints and leaves, and how it ends."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from select import select
from signal import SIGTERM

import httpx
import pytest
from typer.testing import CliRunner, Result

from lakelog.cli import app
from lakelog.cli.common import seconds
from log_tables.clock import SystemClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.errors import InvalidArgument
from log_tables.store.store import open_store
from tests.kit.cli import FAILED, USAGE, lines, printed, wrong
from tests.kit.maintenance import Root
from tests.kit.maintenance import run as run_all
from tests.kit.partitions import append_each
from tests.kit.support import ROOT, WAIT_S, exit_code

Run = Callable[..., Result]


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command on the root that is or is not there, in this process."""

    def run(*arguments: str) -> Result:
        words = ["maintain", "--data", str(tmp_path / "here"), "--nice", "0", *arguments]
        monkeypatch.setattr(sys, "argv", ["lakelog", *words])
        return CliRunner().invoke(app, words, catch_exceptions=False)

    return run


def files(root: Root) -> dict[Path, int]:
    """Everything below both roots, with its size."""
    return {path: path.stat().st_size for path in root.directory.rglob("*")}


# What it takes.


@pytest.mark.parametrize(
    "words",
    [[], ["--once", "--dry-run"], ["--once", "--every", "5m"], ["--every", "5m", "--dry-run"]],
    ids=" ".join,
)
def test_it_runs_once_or_every_so_often_or_not_at_all(run: Run, words: list[str]) -> None:
    wrong(run(*words), USAGE, "choose one of --once, --every TIME and --dry-run")


@pytest.mark.parametrize(("text", "expected"), [("30s", 30), ("5m", 300), ("1h", 3_600), ("1.5 h", 5_400)])
def test_a_time_has_a_unit(text: str, expected: int) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "5", "0s", "-1s", "0.0001s", "m", "1h30m", "٣s", "9999999999s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a time; write it as 30s, 5m or 1h"):
        seconds(text)


def test_the_command_refuses_it_too(run: Run) -> None:
    wrong(run("--every", "5"), USAGE, "--every '5' is not a time")


def test_a_job_that_is_not_known_is_refused_and_nothing_is_done(run: Run, root: Root, tmp_path: Path) -> None:
    before = files(root)
    further = tmp_path / "further"
    wrong(
        run("--once", "--job", "tidy", "--remote-root", str(further)),
        USAGE,
        "there is no job 'tidy'; use one of retention",
    )
    assert files(root) == before


def test_a_port_that_is_taken_is_named(run: Run, root: Root) -> None:
    before = files(root)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = f"--metrics-host 127.0.0.1 --metrics-port {port} cannot be served (Address already in use)"
        wrong(run("--once", "--job", "retention", "--metrics-port", str(port)), USAGE, said)
    assert files(root) == before


def test_an_address_of_another_machine_is_named(run: Run, root: Root) -> None:
    before = files(root)
    words = ("--once", "--metrics-port", "0", "--metrics-host", "192.0.2.1")
    wrong(run(*words), USAGE, "--metrics-host 192.0.2.1 --metrics-port 0 cannot be served")
    assert files(root) == before


def test_a_root_that_is_not_there_is_not_made(run: Run, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    wrong(run("--once", "--data", str(missing)), USAGE, f"there is no directory {missing}; name the root")
    missing.mkdir()
    wrong(run("--once", "--data", str(missing)), USAGE, "there is no lakelog data")
    assert list(missing.iterdir()) == []


# What it prints and does.


def test_a_dry_run_prints_the_plan_and_changes_nothing(run: Run, root: Root) -> None:
    before = files(root)
    plan = printed(run("--dry-run", "--json"))
    said = {(step["job"], step["topic"]): step["what"] for step in plan}
    assert said["retention", "old"].startswith("delete 10 segments (20 records, ")
    assert said["key_compaction", "keyed"] == "compact 10 segments (20 records) by key"
    assert said["segment_compaction", "plain"].startswith("merge 10 segments (")
    assert said["tiering", "far"].startswith("move 9 segments (")
    engines = {step["job"]: step["engine"] for step in plan}
    rewriting = ("key_compaction", "segment_compaction", "tiering")
    assert engines == {"retention": "", **dict.fromkeys(rewriting, "local")}
    shown = lines(run("--dry-run"))
    assert shown[0].split() == ["job", "topic", "partition", "engine", "what"]
    assert len(shown) == 1 + len(plan)
    assert len(lines(run("--dry-run", "--job", "tiering"))) == 2
    assert files(root) == before


def test_a_dry_run_of_one_topic_is_the_part_of_all_that_is_its_own(run: Run, root: Root) -> None:
    everything = printed(run("--dry-run", "--json"))
    for topic in ("plain", "old", "keyed", "far", "__cluster_metadata"):
        of_topic = [step for step in everything if step["topic"] == topic]
        assert printed(run("--dry-run", "--json", "--topic", topic)) == of_topic
    offsets = {(step["job"], step["topic"]): step["offsets"] for step in everything}
    assert offsets["segment_compaction", "plain"] == offsets["key_compaction", "keyed"] == [0, 19]
    assert (offsets["retention", "old"], offsets["tiering", "far"]) == ([0, 19], [0, 17])
    wrong(run("--dry-run", "--topic", "gone"), USAGE, "there is no topic 'gone'")
    wrong(run("--once", "--topic", "plain"), USAGE, "--topic limits what --dry-run shows")


def test_a_dry_run_names_no_remote_root(run: Run, root: Root, tmp_path: Path) -> None:
    before = files(root)
    assert run("--dry-run", "--remote-root", str(tmp_path / "further")).exit_code == 0
    assert files(root) == before


def test_a_dry_run_of_what_is_done_speaks_only_of_files_that_wait(run: Run, root: Root) -> None:
    root.clock.advance(10**12)  # to be later than now
    run_all(root.opened())
    waiting = r".*: 0 files of the log, 0 unreferenced files \(0 bytes\); mark 0, \d+ are waiting"
    for row in printed(run("--dry-run", "--json")):
        assert re.fullmatch(waiting, row["what"])
    merge = ("--dry-run", "--job", "segment_compaction")
    assert lines(run(*merge)) == ["there is nothing to do"]
    assert printed(run(*merge, "--json")) == []


def test_columns_are_made_of_older_records_when_that_is_asked_for(run: Run, root: Root) -> None:
    (step,) = printed(run("--dry-run", "--job", "retype", "--json"))
    assert (step["topic"], step["engine"]) == ("typed", "local")
    assert re.fullmatch(r"retype 5 segments \([0-9,]{5} bytes\) from offset 0 to 1 column", step["what"])
    done = json.loads(*lines(run("--once", "--job", "retype", "--json")))
    assert (done["job"], done["topic"], done["records"], done["error"]) == ("retype", "typed", 10, None)
    assert (done["files_before"], done["files_after"]) == (5, 5)
    assert lines(run("--dry-run", "--job", "retype")) == ["there is nothing to do"]
    root.check_readable()


def test_a_run_says_what_it_did(run: Run, root: Root) -> None:
    """To people here, and to programs below."""
    shown = lines(run("--once", "--job", "retention"))
    told = r"retention old-0: 10 files to 0, [0-9,]{5} bytes to 0, 20 records in \d\.\d s"
    assert re.fullmatch(told, shown[0])
    assert shown[1].startswith("1 partition changed in ")
    assert lines(run("--once", "--job", "retention"))[0].startswith("0 partitions changed in ")


def test_a_run_speaks_json_a_line_for_each_partition(run: Run, root: Root) -> None:
    done = run("--once", "--job", "retention", "--job", "housekeeping", "--json")
    (row,) = map(json.loads, lines(done))
    assert (row["job"], row["topic"], row["partition"], row["records"]) == ("retention", "old", 0, 20)
    assert (row["files_before"], row["files_after"], row["error"]) == (10, 0, None)
    assert lines(run("--once", "--job", "retention", "--json")) == []


def test_a_run_in_which_something_fails_says_so_and_ends_with_1(run: Run, root: Root) -> None:
    directory = root.directory / "here" / "topics" / "plain" / "partition=0"
    directory.rename(root.directory / "gone")
    done = run("--once", "--job", "retention")
    assert done.exit_code == FAILED
    failed, expired, _ = done.stdout.splitlines()
    assert failed.startswith(
        "look plain-0: failed: the metadata log names the table topics/plain/partition=0, which is missing"
    )
    assert expired.startswith("retention old-0: 10 files to 0")
    assert run("--once", "--job", "retention", "--json").exit_code == FAILED


# On a schedule.


@pytest.fixture
def scheduler(root: Root) -> Iterator["subprocess.Popen[str]"]:
    """`--every`, of a job that needs no Java."""
    words = [
        "--data",
        str(root.directory / "here"),
        "--every",
        "1s",
        "--job",
        "retention",
        "--metrics-port",
        "0",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "lakelog", "maintain", *words, "--with-stdin"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        yield process
        process.kill()


def said(process: "subprocess.Popen[str]", what: str) -> None:
    """Read what it prints up to a line that has `what` in it."""
    assert process.stdout is not None
    for line in process.stdout:
        if what in line:
            return
    pytest.fail(f"it ended without saying {what!r}")


SUCCEEDED = "lakelog_maintenance_last_success_timestamp_seconds"


def metrics_url(process: "subprocess.Popen[str]") -> str:
    """Where it serves its metrics: the first line on standard error says it."""
    assert process.stderr is not None
    (url,) = (word for word in process.stderr.readline().split() if word.startswith("http"))
    return url


def samples_at(url: str) -> dict[str, str]:
    found = httpx.get(url).text.splitlines()
    return dict(line.rsplit(" ", 1) for line in found if not line.startswith("#"))


def test_it_runs_until_it_is_told_to_end(scheduler: "subprocess.Popen[str]") -> None:
    said(scheduler, "1 partition changed")
    said(scheduler, "0 partitions changed")
    scheduler.send_signal(SIGTERM)
    assert exit_code(scheduler) == 0


def test_it_ends_with_who_has_started_it(scheduler: "subprocess.Popen[str]") -> None:
    said(scheduler, "1 partition changed")
    assert scheduler.stdin is not None
    scheduler.stdin.close()
    assert exit_code(scheduler) == 0


def test_a_program_that_waits_for_what_was_done_hears_of_it_at_once(root: Root) -> None:
    words = ["--data", str(root.directory / "here"), "--every", "1h", "--job", "retention", "--json"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    starting = [sys.executable, "-m", "lakelog", "maintain", *words]
    with subprocess.Popen(starting, cwd=ROOT, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        readable, _, _ = select([process.stdout], [], [], WAIT_S)
        line = process.stdout.readline() if readable else b""
        process.kill()
    assert line.startswith(b'{"job": "retention", "topic": "old"')


def test_files_that_come_fast_are_merged_before_the_next_run_is_due(tmp_path: Path) -> None:
    """Also where other jobs have something to do, which they do in their turn."""
    cluster = Cluster.open(open_store(tmp_path), SystemClock())
    keyed = create_topic(cluster, "keyed", 1, {"cleanup.policy": "compact", "merge.min.age.ms": "0"})
    words = ["--data", str(tmp_path), "--every", "1h", "--set", "unmerged_segments_urgent=6"]
    starting = [sys.executable, "-m", "lakelog", "maintain", *words, "--metrics-port", "0"]
    pipe = subprocess.PIPE
    with subprocess.Popen(starting, cwd=ROOT, text=True, stdout=pipe, stderr=pipe) as process:
        try:
            said(process, "changed in")
            url = metrics_url(process)
            before = samples_at(url)
            append_each(cluster.claim(keyed, 0), [b"x"] * 8)
            said(process, "segment_compaction keyed-0: 8 files to 1")
            assert process.stdout is not None
            assert process.stdout.readline().startswith("1 partition changed")
            after = samples_at(url)
            runs = 'lakelog_maintenance_runs_total{result="done"}'
            assert (before[runs], after[runs]) == ("1.0", "2.0")
            assert after[SUCCEEDED] == before[SUCCEEDED], "merges alone are no success of the other jobs"
        finally:
            process.kill()


def test_it_is_measured(scheduler: "subprocess.Popen[str]") -> None:
    said(scheduler, "1 partition changed")
    said(scheduler, "0 partitions changed")
    samples = samples_at(metrics_url(scheduler))
    assert float(samples['lakelog_maintenance_runs_total{result="done"}']) >= 1
    assert samples['lakelog_maintenance_partitions_total{job="retention",result="done"}'] == "1.0"
    assert samples['lakelog_maintenance_files_removed_total{job="retention"}'] == "10.0"
    assert float(samples[SUCCEEDED]) > 1.7e9
