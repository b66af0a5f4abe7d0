"""Counts with their nouns, as people read them."""


def counted(count: int, noun: str) -> str:
    """`1 partition`, `2,000 partitions`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
