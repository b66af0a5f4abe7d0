"""The process of a gateway under test: `python -m lakelog.testing.server SETTINGS`, which is JSON.

Each line on its standard input is a fault as JSON that it has from then on, or null, after which it has none.
A line answers it. It ends with its standard input: so it never outlives its test.
"""

import json
import os
import signal
import sys
import threading
from contextlib import suppress

from api.process.server import check_exposure, run, say
from ingest.settings import Settings
from lakelog.testing.faults import App, Fault, FaultKind, FaultyApp


def main() -> None:
    """Serve until SIGTERM, or the end of standard input."""
    settings = Settings.model_validate(json.loads(sys.argv[1]))
    check_exposure(settings)

    def faulty(app: App) -> App:
        made = FaultyApp(app)
        threading.Thread(target=_listen, args=(made,), daemon=True).start()
        return made

    run(settings, around=faulty)


def _listen(app: FaultyApp) -> None:
    with suppress(OSError):
        for line in sys.stdin:
            told = json.loads(line)
            if told is None:
                app.heal()
            else:
                app.add(Fault(**{**told, "kind": FaultKind(told["kind"])}))
            say("done")
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
