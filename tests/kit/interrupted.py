"""Ctrl-C in the middle of a Spark job, and then a job of a session that has stopped: what is left of both.

`python -m tests.kit.interrupted`, as the leader of a process group; prints one JSON document.
"""

import os
import signal

from jobs.engine import EngineGone
from jobs.spark_engine import SparkEngine
from lakelog.cli.commands.maintain import _stopping
from lakelog.cli.common import print_json
from lakelog.cli.maintainer import session


def main() -> None:
    done: object
    group = os.getpgrp()

    def interrupted(item: int) -> int:
        if item == 0:
            os.killpg(group, signal.SIGINT)
        return 10 * item

    with _stopping(False) as stopping:
        try:
            done = SparkEngine(session).spread(interrupted, [0, 1, 2])
        except KeyboardInterrupt:
            done = "interrupted"
        spark = session()
        assert spark.sparkContext._jsc is not None
        spark.sparkContext._jsc.sc().stop()
        try:
            gone = f"{SparkEngine(lambda: spark).spread(str, [0, 1])}"
        except EngineGone as error:
            gone = str(error)
        print_json({"done": done, "stopping": stopping.is_set(), "gone": gone})


if __name__ == "__main__":
    main()
