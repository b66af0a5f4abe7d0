"""A standby is at every moment a root that the original could have been, while clients are busy."""

from pathlib import Path

from log_tables.root.fsck import check
from log_tables.store.store import open_store
from tests.kit.root_clients import busy
from tests.kit.standby import Watched, follow, logs


def test_a_standby_is_whole_while_clients_are_busy(tmp_path: Path) -> None:
    target = Watched(open_store(tmp_path / "there"))
    with busy(str(tmp_path / "here"), {}) as clients:
        source = open_store(tmp_path / "here")
        begun = clients.copied
        follow(source, target, until=lambda: clients.copied > begun + 60 and target.checked > 60)
        assert check(target.inner).problems == []
    assert target.problems == []
    follow(source, target)
    assert logs(target) == logs(source)
    assert check(target.inner).problems == []
