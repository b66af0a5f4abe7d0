"""How PySpark finds the data source `lakelog`: it looks for a DefaultSource in modules `pyspark_…`."""

from lakelog.spark.data_source import LakelogSource as DefaultSource

__all__ = ["DefaultSource"]
