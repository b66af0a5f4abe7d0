"""Make the virtual environment: `python3 scripts/setup.py VENV demo|dev`. Needs nothing but Python and venv.

Every package is one of requirements/*.txt, checked against its hash; the project itself is editable.
"""

from __future__ import annotations  # so that an older Python gets as far as being told

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON_MIN = (3, 11)


def main(directory: str, kind: str) -> None:
    """Make or complete the environment `directory` for `kind` (demo or dev)."""
    if sys.version_info < PYTHON_MIN:
        sys.exit(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}: make PYTHON=python3.12")
    environment, locked = Path(directory).absolute(), ROOT / "requirements"
    python, uv = environment / "bin" / "python", environment / "bin" / "uv"
    if not python.exists():
        print(f"making the environment {directory}", flush=True)
        venv.create(environment, with_pip=True)
    if not uv.exists():
        run(python, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", locked / "uv.txt")
    print("installing the locked packages", flush=True)
    install = (uv, "pip", "install", "--quiet", "--python", python)
    run(*install, "--require-hashes", "-r", locked / f"{kind}.txt")
    run(*install, "--no-deps", "--no-build-isolation", "--editable", ROOT)


def run(*command: str | Path) -> None:
    """Run a command and end with its exit code when it fails."""
    # uv brings its own certificates; the machine's are the ones that its owner trusts.
    environment = {"UV_NATIVE_TLS": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", **os.environ}
    done = subprocess.run([str(part) for part in command], env=environment, check=False)
    if done.returncode:
        sys.exit(done.returncode)


if __name__ == "__main__":
    main(*sys.argv[1:])
