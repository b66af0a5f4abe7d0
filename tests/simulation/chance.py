"""Randomness by a seed."""

from random import Random as Chance  # noqa: TID251 -- of a seed, not of the machine

__all__ = ["Chance"]
