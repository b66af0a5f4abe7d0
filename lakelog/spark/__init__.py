"""Topics as batches, streams and SQL views. Needs lakelog's extra `spark` and Java 17 or newer."""

from lakelog.spark.connect import DELTA_PACKAGE
from lakelog.spark.data_source import register
from lakelog.spark.session import session
from lakelog.spark.sql.views import topics

__all__ = ["DELTA_PACKAGE", "register", "session", "topics"]
