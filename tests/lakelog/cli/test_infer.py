"""`lakelog topic infer`: it proposes columns, and declares them on a word."""

from pathlib import Path

from tests.kit.cli import Run, lines, printed

VALUES = '{"carrier":"UA","delay":2,"time":"2013-01-01T05:00:00Z"}\n{"carrier":"AA","delay":-1.5}\n'
DECLARED = "carrier string, delay double, time timestamp"


def test_columns_are_proposed_and_declared_on_a_word(run: Run, tmp_path: Path) -> None:
    (tmp_path / "values").write_text(VALUES)
    run("topic", "create", "cli-infer", "--partitions", "2")
    run("produce", "cli-infer", str(tmp_path / "values"), "--format", "lines")
    proposed = lines(run("topic", "infer", "cli-infer"))
    assert proposed[0] == "2 records of topic cli-infer: 3 columns, 3 of them new"
    assert [line.strip(" ,") for line in proposed[2:5]] == DECLARED.split(", ")
    assert printed(run("topic", "infer", "cli-infer", "--json")) == {
        "topic": "cli-infer",
        "sampled": 2,
        "value.columns": DECLARED,
        "new": 3,
        "declared": False,
    }
    declared = lines(run("topic", "infer", "cli-infer", "--yes"))
    assert declared[-1].startswith("topic cli-infer has 3 declared columns from now on")
    described = printed(run("topic", "describe", "cli-infer", "--json"))
    assert described["configs"]["value.columns"] == DECLARED
    again = printed(run("topic", "infer", "cli-infer", "--yes", "--json"))
    assert (again["new"], again["declared"]) == (0, False)


def test_a_topic_without_objects_has_nothing_to_declare(run: Run) -> None:
    run("topic", "create", "cli-infer-none")
    (line,) = lines(run("topic", "infer", "cli-infer-none"))
    assert line == "0 records of topic cli-infer-none: no field of an object that a column could have"
