"""Ctrl-C in the middle of a Spark job, and then a job of a session that has stopped: what is left of both.

`python -m tests.kit.interrupted`, as the leader of a process group; prints one JSON document.
"""

import os
import signal
from functools import partial

from jobs.engine import EngineGone
from jobs.spark_engine import SparkEngine
from lakelog.cli.beside import stopping_event
from lakelog.cli.common import print_json
from lakelog.cli.maintainer import session

STAND_BACK = 3


def main() -> None:
    done: object
    group, start = os.getpgrp(), partial(session, STAND_BACK)

    def interrupted(item: int) -> int:
        if item == 0:
            os.killpg(group, signal.SIGINT)
        return 10 * item

    with stopping_event(False) as stopping:
        try:
            done = SparkEngine(start).spread(interrupted, [0, 1, 2])
        except KeyboardInterrupt:
            done = "interrupted"
        (back,) = SparkEngine(start).spread(os.nice, [0])
        spark = start()
        assert spark.sparkContext._jsc is not None
        spark.sparkContext._jsc.sc().stop()
        try:
            gone = f"{SparkEngine(lambda: spark).spread(str, [0, 1])}"
        except EngineGone as error:
            gone = str(error)
        here = os.nice(0)
        niceness = {"asked": STAND_BACK, "niceness": [here, back]}
        print_json({"done": done, "stopping": stopping.is_set(), "gone": gone, **niceness})


if __name__ == "__main__":
    main()
