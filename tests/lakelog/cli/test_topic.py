"""`lakelog topic`: create, list, describe, alter, delete."""

import json

from tests.kit.cli import USAGE, Run, lines, printed, wrong


def test_a_topic_lives_from_creation_to_deletion(run: Run) -> None:
    created = run("topic", "create", "cli-life", "--partitions", "2", "--config", "compression.type=lz4")
    assert lines(created) == ["created topic cli-life with 2 partitions"]
    assert "cli-life" in lines(run("topic", "list"))
    described = run("topic", "describe", "cli-life")
    assert "log_start_offset" in described.stdout
    assert ["compression.type", "lz4", "zstd"] in [line.split() for line in lines(described)]
    assert "retention.ms" not in described.stdout
    altered = run("topic", "alter", "cli-life", "--unset", "compression.type", "--partitions", "3")
    assert lines(altered) == [
        "altered topic cli-life",
        "partitions: 2 -> 3",
        "compression.type: lz4 -> zstd",
    ]
    assert "All settings have their defaults; --all shows them." in lines(
        run("topic", "describe", "cli-life")
    )
    assert lines(run("topic", "delete", "--yes", "cli-life")) == ["deleted topic cli-life"]
    assert "cli-life" not in lines(run("topic", "list"))


def test_topics_are_created_described_and_deleted_together(run: Run) -> None:
    names = ("cli-one", "cli-two")
    created = lines(run("topic", "create", *names))
    assert created == [f"created topic {name} with 1 partition" for name in names]
    described = lines(run("topic", "describe", *names))
    assert [line for line in described if line.startswith("topic cli-")] == [f"topic {n}" for n in names]
    tables = [line for line in described if line.startswith("one Delta table: ")]
    assert [line.rsplit("/", 2)[1:] for line in tables] == [["topics", name] for name in names]
    found = map(json.loads, lines(run("topic", "describe", *names, "--json")))
    assert [each["topic"] for each in found] == list(names)
    half = run("topic", "create", "cli-three", "cli-one")
    assert (half.exit_code, half.stdout) == (USAGE, "created topic cli-three with 1 partition\n")
    deleted = lines(run("topic", "delete", "--yes", *names, "cli-three"))
    assert deleted == [f"deleted topic {name}" for name in (*names, "cli-three")]


def test_topic_commands_speak_json(run: Run) -> None:
    assert printed(run("topic", "create", "cli-json", "--json")) == {"topic": "cli-json", "partitions": 1}
    assert "cli-json" in printed(run("topic", "list", "--json"))
    described = printed(run("topic", "describe", "cli-json", "--json"))
    partition = {"partition": 0, "log_start_offset": 0, "high_watermark": 0, "offsets": 0}
    assert (described["topic"], described["partitions"]) == ("cli-json", [partition])
    altered = printed(run("topic", "alter", "cli-json", "--config", "compression.type=snappy", "--json"))
    assert altered["configs"]["compression.type"] == "snappy"
    assert altered["changed"] == {"compression.type": {"from": "zstd", "to": "snappy"}}
    assert printed(run("topic", "delete", "--yes", "cli-json", "--json")) == {"deleted": "cli-json"}


def test_settings_take_units_and_are_shown_with_them(run: Run) -> None:
    run("topic", "create", "cli-units", "--config", "retention.ms=7d")
    altered = run(
        "topic", "alter", "cli-units", "--config", "retention.ms=36h", "--config", "retention.bytes=1GiB"
    )
    assert lines(altered)[1:] == [
        "retention.ms: 604800000 (7d) -> 129600000 (36h)",
        "retention.bytes: -1 -> 1073741824 (1GiB)",
    ]
    same = run("topic", "alter", "cli-units", "--config", "retention.ms=36h")
    assert lines(same) == ["topic cli-units is as it was"]
    every = [line.split() for line in lines(run("topic", "describe", "cli-units", "--all"))]
    assert ["retention.ms", "129600000", "(36h)", "-1"] in every
    assert ["segment.bytes", "134217728", "(128MiB)", "134217728", "(128MiB)"] in every
    refused = run("topic", "alter", "cli-units", "--config", "retention.ms=7x")
    assert refused.exit_code == USAGE
    assert "retention.ms='7x'" in refused.stderr


def test_what_may_be_meant_is_named(run: Run) -> None:
    run("topic", "create", "cli-flights")
    wrong(run("topic", "delete", "--yes", "cli-flihgts"), USAGE, "'cli-flihgts'; did you mean cli-flights?")
    wrong(run("topic", "describe", "zzz"), USAGE, "there is no topic 'zzz'; `lakelog topic list` lists them")
    setting = run("topic", "alter", "cli-flights", "--config", "retention=1")
    wrong(setting, USAGE, "no topic setting 'retention'; did you mean retention.ms?")
    wrong(run("consume", "cli-flihgts"), USAGE, "did you mean cli-flights?")
    wrong(run("produce", "cli-flihgts"), USAGE, "did you mean cli-flights?; or create it with --create")


def test_settings_go_back_to_a_version_of_their_history(run: Run) -> None:
    run("topic", "create", "cli-back", "--partitions", "1", "--config", "retention.ms=7d")
    run("topic", "alter", "cli-back", "--config", "retention.ms=1d", "--config", "compression.type=lz4")
    altered, created = printed(run("topic", "history", "cli-back", "--json"))["data"]
    assert (altered["event"], created["event"]) == ("altered", "created")
    shown = lines(run("topic", "history", "cli-back"))
    assert "compression.type: – to lz4" in shown[1]
    back = ("topic", "revert", "cli-back", "--to", str(created["version"]))
    assert "lz4" in run(*back, "--dry-run").stdout
    assert printed(run("topic", "describe", "cli-back", "--json"))["configs"]["compression.type"] == "lz4"
    run(*back)
    assert printed(run("topic", "describe", "cli-back", "--json"))["configs"]["retention.ms"] == "604800000"
    assert lines(run(*back))[-1] == "nothing differs from that version"
    wrong(run("topic", "revert", "cli-back"), USAGE, "use one of them")
    wrong(run("topic", "revert", "cli-back", "--to-time", "2001-01-01"), USAGE, "there was nothing of topic")


def test_a_deleted_topic_is_listed_and_brought_back_or_purged(run: Run) -> None:
    run("topic", "create", "cli-undo", "--partitions", "2")
    refused = run("topic", "delete", "cli-undo")
    assert (refused.exit_code, refused.stdout) == (USAGE, "")
    assert "nothing was deleted: there is nobody to ask" in refused.stderr
    assert "`lakelog topic delete --yes cli-undo`" in refused.stderr
    assert "topic cli-undo: 2 partitions, 0 records, 0 bytes; it can be brought back for 1d" in refused.stderr
    assert "cli-undo" in lines(run("topic", "list"))
    run("topic", "delete", "--yes", "cli-undo")
    (found,) = [
        each for each in printed(run("topic", "list", "--deleted", "--json")) if each["topic"] == "cli-undo"
    ]
    assert found["id"] in run("topic", "list", "--deleted").stdout
    run("topic", "create", "cli-undo")
    run("topic", "create", "cli-ever", "--config", f"topic.delete.delay.ms={2**63 - 1}")
    run("topic", "delete", "--yes", "cli-ever")
    assert any(line.rstrip().endswith("  never") for line in lines(run("topic", "list", "--deleted")))
    back = lines(run("topic", "undelete", "cli-undo", "--id", found["id"], "--as", "cli-undone"))
    assert back[0] == "topic cli-undone is back, with 2 partitions"
    assert "has the ACLs that cli-undo had when it was deleted" in back[1]
    run("topic", "delete", "--yes", "cli-undone")
    asked = run("topic", "purge", "cli-undone")
    shown = f"`lakelog topic purge --yes cli-undone --id {found['id']}`"
    assert (asked.exit_code, shown in asked.stderr) == (USAGE, True), "it is the one that was shown"
    wrong(run("topic", "purge", "cli-nobody"), USAGE, "there is no deleted topic 'cli-nobody'")
    assert lines(run("topic", "purge", "--yes", "cli-undone")) == [
        "freed 0 bytes of the deleted topic cli-undone"
    ]
    assert run("topic", "undelete", "cli-undone").exit_code == USAGE


def test_deleted_records_are_restored(run: Run) -> None:
    run("topic", "create", "cli-restore")
    dry = printed(run("topic", "restore", "cli-restore", "--to-time", "2100-01-01", "--dry-run", "--json"))
    assert [(each["partition"], each["log_start"], each["records"]) for each in dry] == [(0, 0, 0)]
    none = run("topic", "restore", "cli-restore", "--to-time", "2100-01-01")
    assert "oldest version" in none.stdout
    assert "nothing to bring back" in none.stderr
    assert "name its version with --to-version" in none.stderr
    wrong(run("topic", "restore", "cli-restore"), USAGE, "a version or a time")
