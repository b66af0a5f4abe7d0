"""What programs import by name: a change here is a change for them."""

import lakelog
import lakelog.spark


def test_the_public_names_are_these() -> None:
    assert lakelog.__all__ == ["Client", "Consumer", "Producer", "Record"]
    assert all(getattr(lakelog, name).__name__ == name for name in lakelog.__all__)
    assert lakelog.spark.__all__ == ["DELTA_PACKAGE", "register", "session", "topics"]
