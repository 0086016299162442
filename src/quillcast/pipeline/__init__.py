"""Everything in bulk, on Spark: tables in, tables out (docs/audit.md).

Importing this package loads neither Spark nor Arrow; the modules that make tables do.
"""
