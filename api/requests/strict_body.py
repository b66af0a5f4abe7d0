"""Bodies that know their fields: what is misspelt is refused, and in few words however much of it there is.

Each problem that a validation finds takes a kilobyte, so that a million of them are not collected.
"""

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, FailFast, model_validator

_UNKNOWN_MAX = 10
"""Fields that are not known and named one by one."""

Item = TypeVar("Item")


class _AtFirst(FailFast):
    """Pydantic's, which cannot stand in a union, as it has no hash."""

    __hash__ = object.__hash__


Listed = Annotated[list[Item], _AtFirst()]
"""A list of which the first item that is wrong is named."""


class StrictBody(BaseModel):
    """A body, or a part of one, that refuses a field which it does not know: it may be misspelt."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _has_few_unknown(cls, sent: Any) -> Any:
        if isinstance(sent, dict) and len(sent) > len(cls.model_fields) + _UNKNOWN_MAX:
            raise ValueError(f"{len(sent)} fields are too many; known are {', '.join(cls.model_fields)}")
        return sent
