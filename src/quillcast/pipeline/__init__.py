"""Bulk computations on Spark: tables in, tables out (docs/audit.md).

Importing this package loads neither Spark nor Arrow; only the modules that create tables do.
"""
