"""Make the file system of the image by the interpreter that it is to hold: `python file_system.py DIRECTORY`.

It has this interpreter, the packages that are installed for it, the shared libraries that these load, and
what a gateway reads of a Linux system. Left out are tests, headers, tools that install packages, and the
parts of Arrow that need a server of Arrow's or reach S3 without obstore: nothing of lakelog imports them.
"""

import compileall
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

USER_ID = 10_001
"""Of the account `lakelog`; a number, by which Kubernetes can tell that it is not root."""

SYSTEM = ("/etc/ssl/certs/ca-certificates.crt", "/usr/share/zoneinfo", "/etc/nsswitch.conf")
"""Authorities, time zones, and how names of hosts are found."""

STDLIB_WITHOUT = (
    *("__pycache__", "site-packages", "config-*", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "test"),
    *("tkinter", "turtledemo", "_test*.so", "_tkinter*.so", "_ctypes_test*.so", "xx*.so"),
)

TOOLS = ("pip", "pathspec", "pluggy", "hatchling", "packaging", "trove_classifiers", "setuptools", "wheel")

PACKAGES_WITHOUT = (
    *("__pycache__", "tests", "*.pyx", "*.pxd", "*.pxi", "*.pyi", "*.c", "*.h", "*.a", "_virtualenv*"),
    *("*.pth", "__editable__*", "distutils", "f2py", *TOOLS, *(f"{tool}-*.dist-info" for tool in TOOLS)),
)

ARROW_WITHOUT = (
    *("include", "src", "includes", "libarrow_flight*", "libarrow_python_flight*", "_flight*"),
    *("libarrow_s3*", "_s3fs*", "_pyarrow_cpp_tests*", "libarrow_python*.so", "libarrow_python*.so.*.*"),
)
"""Of its libraries for Python the loader takes one of three equal files, the one with one number."""

NOT_STRIPPED = ".libs"
"""The folders of wheels with libraries of others, whose sections were moved: strip would break them."""

NOT_COMPILED = re.compile("/pygments/lexers/[^_]")
"""Five megabytes for languages that nothing prints."""

_LIBRARY = re.compile(r"(?:=> )?(/\S+) \(0x")


def main(target: Path) -> None:
    """Fill `target`, which must not exist. Raises CalledProcessError, OSError."""
    python = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    stdlib = Path(sysconfig.get_path("stdlib"))
    copy_python(target, python, stdlib)
    copy_packages(under(target, stdlib) / "site-packages")
    add_commands(target, python)
    add_account(target)
    for library in sorted(libraries([python, *shared_objects(target)])):
        copy(library, target)
    for path in map(Path, SYSTEM):
        if path.exists():
            copy(path, target)
    strip(target)
    compileall.compile_dir(
        under(target, stdlib), stripdir=str(target), prependdir="/", quiet=2, rx=NOT_COMPILED
    )


def under(target: Path, path: Path) -> Path:
    """Where the absolute `path` is in the image."""
    return target / path.relative_to("/")


def copy(path: Path, target: Path) -> None:
    """Have `path` in the image, and for a link what it leads to."""
    place = under(target, path)
    place.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.copytree(path, place, symlinks=True)
    elif not place.exists():
        shutil.copy(path, place)


def copy_python(target: Path, python: Path, stdlib: Path) -> None:
    ignored = shutil.ignore_patterns(*STDLIB_WITHOUT)
    shutil.copytree(stdlib, under(target, stdlib), ignore=ignored, symlinks=True)
    copy(python, target)


def copy_packages(target: Path) -> None:
    ignore_any = shutil.ignore_patterns(*PACKAGES_WITHOUT)
    ignore_arrow = shutil.ignore_patterns(*ARROW_WITHOUT)

    def ignored(directory: str, names: list[str]) -> set[str]:
        of_arrow = ignore_arrow(directory, names) if Path(directory).name == "pyarrow" else set()
        return ignore_any(directory, names) | of_arrow

    for source in sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}):
        shutil.copytree(source, target, ignore=ignored, dirs_exist_ok=True)


def add_commands(target: Path, python: Path) -> None:
    """`lakelog`, the check of its health, and the interpreter, where the image looks for them."""
    run = f"#!{python}\nimport sys\n\nfrom lakelog.cli import app\n\nsys.exit(app())\n"
    directory = target / "usr" / "local" / "bin"
    directory.mkdir(parents=True, exist_ok=True)
    check = Path(__file__).with_name("health.py").read_text()
    for name, text in (("lakelog", run), ("lakelog-health", check)):
        (directory / name).write_text(text)
        (directory / name).chmod(0o755)
    for name in ("python", "python3"):
        (directory / name).symlink_to(python)


def add_account(target: Path) -> None:
    """The user that gateways run as, the directory of its root, and one for temporary files."""
    (target / "etc").mkdir(parents=True, exist_ok=True)
    (target / "etc" / "passwd").write_text(
        f"root:x:0:0:root:/nonexistent:/nonexistent\nlakelog:x:{USER_ID}:{USER_ID}:lakelog:/var/lib/lakelog:/nonexistent\n"
    )
    (target / "etc" / "group").write_text(f"root:x:0:\nlakelog:x:{USER_ID}:\n")
    (target / "tmp").mkdir()
    (target / "tmp").chmod(0o1777)
    data = target / "var" / "lib" / "lakelog"
    data.mkdir(parents=True)
    data.chmod(0o700)
    shutil.chown(data, USER_ID, USER_ID)


def shared_objects(directory: Path) -> Iterator[Path]:
    return (path for path in directory.rglob("*.so*") if path.is_file() and not path.is_symlink())


def libraries(objects: list[Path]) -> set[Path]:
    """The libraries of the system that `objects` load, and the loader, as `ldd` finds them."""
    done = subprocess.run(["ldd", *objects], capture_output=True, text=True, check=False)
    found = {Path(path) for path in _LIBRARY.findall(done.stdout)}
    own = {path for path in found if "site-packages" in path.parts}
    return found - own


def strip(target: Path) -> None:
    """Remove symbols that only a debugger reads."""
    paths = [path for path in shared_objects(target) if not path.parent.name.endswith(NOT_STRIPPED)]
    subprocess.run(["strip", "--strip-unneeded", *paths], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
