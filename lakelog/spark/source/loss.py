"""Records that a query has yet to read are gone: it fails, or continues, by the option failOnDataLoss."""

import logging

from log_tables.errors import Conflict

_log = logging.getLogger(__name__)


class DataLost(Conflict):
    """Records that a query has yet to read are gone: retention, a deleted topic, an offset out of range."""

    code = "data_lost"


def report_loss(what: str, fail: bool) -> None:
    """Raise DataLost; with failOnDataLoss=false log a warning instead."""
    if fail:
        raise DataLost(
            f"{what}; some records may have been missed: correct the options, start a new query, or set "
            "failOnDataLoss=false to continue without them"
        )
    _log.warning("%s; some records may have been missed (failOnDataLoss=false)", what)
