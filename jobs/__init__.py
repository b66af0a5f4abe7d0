"""Spark maintenance: each job a pure plan(...) and a thin run(spark, plan)."""
