"""A long list, a page at a time."""

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

Item = TypeVar("Item")

PAGE_ITEMS = 50


class ItemPage(NamedTuple, Generic[Item]):
    """A page of a list: its items, its number from 1 on, how many there are, and of how many items."""

    items: Sequence[Item]
    page: int
    pages: int
    total: int


def paged(items: Sequence[Item], page: int) -> ItemPage[Item]:
    """The page with this number; the last one for a number that is too large."""
    pages = max(1, -(-len(items) // PAGE_ITEMS))
    page = min(page, pages)
    return ItemPage(items[(page - 1) * PAGE_ITEMS : page * PAGE_ITEMS], page, pages, len(items))
