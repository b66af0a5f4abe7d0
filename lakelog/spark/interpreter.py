"""Which Python a local Spark starts: this one, with the PySpark that is installed here."""

import os
import shlex
import sys
from pathlib import Path

import py4j
import pyspark

from lakelog.spark.jre import write_script

_SHIM = """\
#!/bin/sh
# Spark puts archives before all packages: PySpark, py4j and a jar. Python compiles what it imports from an
# archive again in every process. This environment has both installed, and compiled.
path=
set -f
IFS=:
for entry in $PYTHONPATH; do
  case $entry in
    */pyspark.zip | */py4j-*-src.zip | */spark-core_*.jar) ;;
    *) path=$path${{path:+:}}$entry ;;
  esac
done
unset IFS
PYTHONPATH=$path
exec {python} "$@"
"""


def python_for_workers(master: str) -> str:
    """The value of PYSPARK_PYTHON for a Spark at `master`.

    A local Spark gets a script in the environment's directory, which starts this interpreter with a third
    less work. Spark waits 10 s for the process that plans a stream, and no setting makes it wait longer.
    Executors on other machines do not have that script; they get the interpreter's own path.
    """
    installed = all(Path(package.__file__ or "").is_file() for package in (pyspark, py4j))
    if os.name != "posix" or not installed or not master.startswith("local"):
        return sys.executable
    script = Path(sys.prefix, "lakelog-python", "python3")
    try:
        write_script(script, _SHIM.format(python=shlex.quote(sys.executable)))
    except OSError:  # an environment that only its owner may write
        return sys.executable
    return str(script)
