"""A gateway for tests of programs that use lakelog, and the faults that they have to bear.

    with lakelog.testing.gateway() as gateway:
        gateway.lose_answer("/topics/orders", method="POST")

The plugin of pytest has it as the fixture `lakelog_gateway`, with a topic for each test, `lakelog_topic`.
docs/testing-programs.md has examples. Stores that fail are in log_tables/testing.py.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakelog.testing.running_gateway import RunningGateway, gateway

__all__ = ["RunningGateway", "gateway"]


def __getattr__(name: str) -> object:
    """Load a name at its first use (PEP 562): pytest loads the plugin in every run."""
    if name not in __all__:
        raise AttributeError(f"module 'lakelog.testing' has no attribute {name!r}")
    from lakelog.testing import running_gateway

    return getattr(running_gateway, name)
