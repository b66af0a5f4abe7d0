"""Install a wheel alone into a fresh environment, and import every module that it holds: `make dist` runs it.

The environment has what `pip install lakelog` brings, so the modules for Spark are only looked for, not
imported: the tests import those.
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = Path(sys.executable).parent / "uv"
NEEDS_PYTEST = "lakelog.testing.plugin"
NEEDS_SPARK = ("jobs", "lakelog.spark", "pyspark_lakelog")

PAGE_SUFFIXES = (".css", ".html", ".js", ".svg", ".txt")

IMPORT_ALL = """\
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


def main(wheel: str) -> None:
    """Exit with an error when a module is missing from `wheel`, or lacks a dependency."""
    with tempfile.TemporaryDirectory() as scratch:
        modules = check(Path(wheel).absolute(), Path(scratch))
    print(f"the wheel holds {len(modules)} modules, and imports {len(without_spark(modules))} without Spark")


def check(wheel: Path, scratch: Path) -> list[str]:
    """Install `wheel` in `scratch` and import its modules; returns their names."""
    modules = held(wheel)
    if modules != (expected := sorted(module for package in packages() for module in module_names(package))):
        sys.exit(f"not the same in the wheel and in the folder: {sorted(set(modules) ^ set(expected))}")
    if (others := held_files(wheel)) != (there := sorted(files_of_pages())):
        sys.exit(f"not the same in the wheel and in the folder: {sorted(set(others) ^ set(there))}")
    run(UV, "venv", "--quiet", "--python", sys.executable, scratch / "venv")
    python = scratch / "venv" / "bin" / "python"
    locked = ("--constraints", ROOT / "requirements" / "dev.txt")
    run(UV, "pip", "install", "--quiet", "--native-tls", "--python", python, *locked, wheel)
    run(python, "-I", "-c", IMPORT_ALL, *without_spark(modules), cwd=scratch)
    run(scratch / "venv" / "bin" / "lakelog", "--help", cwd=scratch)
    return modules


def packages() -> list[Path]:
    """The project's packages: the folders marked as typed."""
    return sorted(marker.parent for marker in ROOT.glob("*/py.typed"))


def module_names(package: Path) -> list[str]:
    """The dotted names of the modules in a package's folder."""
    return [dotted(str(path.relative_to(ROOT))) for path in package.rglob("*.py")]


def held(wheel: Path) -> list[str]:
    """The dotted names of the modules in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return sorted(dotted(name) for name in archive.namelist() if name.endswith(".py"))


def files_of_pages() -> list[str]:
    """The templates, styles, scripts and pictures of the packages."""
    files = (path for package in packages() for path in package.rglob("*.*") if path.suffix in PAGE_SUFFIXES)
    return [str(path.relative_to(ROOT)) for path in files]


def held_files(wheel: Path) -> list[str]:
    """The files of such kinds in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        names = (name for name in archive.namelist() if ".dist-info/" not in name)
        return sorted(name for name in names if Path(name).suffix in PAGE_SUFFIXES)


def dotted(path: str) -> str:
    """`a/b/__init__.py` is a.b."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def without_spark(modules: list[str]) -> list[str]:
    """The modules that need no PySpark and no pytest, and that do nothing but define when imported."""
    others = (*NEEDS_SPARK, NEEDS_PYTEST, "lakelog.__main__")
    return [module for module in modules if not module.startswith(others)]


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    """Run a command, showing what it printed only when it fails, and end with an error then."""
    words = [str(part) for part in command]
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words[:4])} …\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main(sys.argv[1])
