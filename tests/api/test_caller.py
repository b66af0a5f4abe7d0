"""The principal of a request, as logs name it."""

import pytest

from api.access_log import CONTEXT, caller
from coordinator.access.principal import Principal, RequestContext


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("User:ann", "'User:ann' at 10.0.0.7"),
        ("User:a\nb", "'User:a\\nb' at 10.0.0.7"),
        ("User:" + "x" * 300, f"'User:{'x' * 195}' at 10.0.0.7"),
    ],
)
def test_a_log_names_the_principal_and_its_address_in_one_line(name: str, shown: str) -> None:
    assert caller({CONTEXT: RequestContext(Principal(name), "10.0.0.7")}) == shown


def test_a_request_without_a_principal_is_of_somebody() -> None:
    assert caller({}) == "somebody"
