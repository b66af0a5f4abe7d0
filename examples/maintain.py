r"""The maintenance of a root as an application for spark-submit: all jobs, or those that --job names.

    pip wheel --no-deps --wheel-dir dist .
    spark-submit --py-files dist/lakelog-0.1.0-py3-none-any.whl \
        --packages io.delta:delta-spark_4.2_2.13:4.4.0 \
        examples/maintain.py --once --engine spark --job segment_compaction --data ./lakelog-data

It takes what `lakelog maintain` takes; docs/maintenance.md has the settings and other schedulers.
"""

import sys

from lakelog.cli import app

if __name__ == "__main__":
    app(["maintain", *sys.argv[1:]])
