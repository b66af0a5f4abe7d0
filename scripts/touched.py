"""Run the tests of what has changed, and of its importers; `make touched` does.

Whole run the changed tests, and those of the changed modules (`tests/<folder>/<room>/test_<noun>.py`). The
tests that import one of these modules, or one of their importers, run as in `make quick`.
"""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parent.parent
_NOTHING_RUN = 5

PACKAGES = ("api", "coordinator", "ingest", "jobs", "lakelog", "log_tables", "pyspark_lakelog", "tests")


def main(base: str = "") -> int:
    """Go by what differs from the newest commit that `base` has, too: by itself `origin/main`, or HEAD where
    there is none. Returns pytest's exit code.
    """
    base = base or next(iter(_git("branch", "--remotes", "--list", "origin/main")), "HEAD").strip()
    changed = sorted(
        {*_git("diff", "--name-only", "--merge-base", base), *_git("ls-files", "-o", "--exclude-standard")}
    )
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    modules = {_module(path) for path in changed if path.endswith(".py")} & graph.modules
    whole = {path for name in modules for path in _own_tests(name)}
    importers = {each for name in modules for each in graph.find_modules_that_directly_import(name)}
    beyond = {each for name in importers for each in graph.find_modules_that_directly_import(name)}
    others = {_path(name) for name in importers | beyond if _is_test(name)} - whole
    print(
        f"{len(changed)} changed files; {len(whole)} files of tests whole, {len(others)} as in `make quick`"
    )
    return max(_run(whole), _run(others, "--quick", "--dist", "worksteal"))


def _git(*words: str) -> list[str]:
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _path(module: str) -> str:
    return module.replace(".", "/") + ".py"


def _is_test(module: str) -> bool:
    return module.startswith("tests.") and module.rpartition(".")[2].startswith("test_")


def _own_tests(module: str) -> Iterable[str]:
    """The tests of one module, in its room or the one around it; those of a module of tests are itself."""
    if module.startswith("tests."):
        return [_path(module)] if _is_test(module) else []
    room, _, noun = module.rpartition(".")
    folder = ROOT / "tests" / room.replace(".", "/")
    found = [path for each in (folder, folder.parent) for path in each.glob(f"test_{noun}*.py")]
    return [str(path.relative_to(ROOT)) for path in found]


def _run(files: Iterable[str], *options: str) -> int:
    some = sorted(files)
    if not some:
        return 0
    command = [sys.executable, "-m", "pytest", "--numprocesses", "2", "--quiet", "-r", "fE", *options, *some]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    return 0 if code == _NOTHING_RUN else code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
