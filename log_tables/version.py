"""The version of lakelog: of the package, of the HTTP interface, and in the commits of tables."""

VERSION = "0.1.0"
