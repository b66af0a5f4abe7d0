"""`lakelog bench`: its figures, and what it leaves."""

from tests.kit.cli import Run, printed


def test_a_short_bench_prints_its_figures_and_leaves_no_topic(run: Run) -> None:
    flags = ("--seconds", "1", "--records", "10", "--connections", "1", "--partitions", "1", "--json")
    for wire in ("json", "arrow"):
        figures = printed(run("bench", "--format", wire, *flags))
        assert figures["produced records/s"] > 0
        assert figures["fetched records/s"] > 0
    assert not any(name.startswith("bench-") for name in printed(run("topic", "list", "--json")))
