"""The Parquet files that hold records, and making new ones of old ones."""
