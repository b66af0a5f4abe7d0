"""The log itself: one partition is one Delta table. No HTTP, no Spark, no asyncio."""
