"""A store on a local disk."""

from pathlib import Path

import pytest

from log_tables.clock import SystemClock
from log_tables.store.local import LocalStore


@pytest.fixture
def local(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path, SystemClock())
