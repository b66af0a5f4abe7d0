"""The topics' tables in a catalog of tables: Unity Catalog, Hive's metastore, AWS Glue (docs/catalogs.md)."""
