"""What tests of the command may ask for."""

from tests.kit.cli import run

__all__ = ["run"]
