"""The errors that a process of queries tells its gateway."""

import pytest

from api.console.query_process import QueryCrash, error_of
from log_tables.errors import CorruptSegment, InvalidArgument, LakelogError, StoreUnavailable
from log_tables.sql.query_request import QueryFailure


@pytest.mark.parametrize("kind", [InvalidArgument, StoreUnavailable, CorruptSegment])
def test_an_error_arrives_as_what_it_was(kind: type[LakelogError]) -> None:
    error = error_of(QueryFailure(kind.code, "it is so", 1))
    assert type(error) is kind
    assert str(error) == "it is so"


def test_an_error_that_is_not_known_is_one_of_ours_all_the_same() -> None:
    assert type(error_of(QueryFailure("of_tomorrow", "x", 1))) is LakelogError


def test_a_mistake_of_ours_is_no_error_that_a_client_is_told() -> None:
    error = error_of(QueryFailure("", "Traceback …", 1))
    assert isinstance(error, QueryCrash)
    assert not isinstance(error, LakelogError)
