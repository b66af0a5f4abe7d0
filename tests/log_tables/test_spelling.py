"""Names that somebody may have meant."""

import pytest

from log_tables.spelling import meant


@pytest.mark.parametrize(
    ("name", "said"),
    [("flihgts", "did you mean flights?"), ("FLIGHTS", "did you mean flights?"), ("xyz", ""), ("", "")],
)
def test_the_name_that_is_most_alike_may_be_meant(name: str, said: str) -> None:
    assert meant(name, ["flights", "orders", "Fares"]) == said
