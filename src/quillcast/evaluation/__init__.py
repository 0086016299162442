"""Evaluate deployments of up to millions of peers on Spark before anyone builds them (docs/evaluation.md).

Its policies compute trees; they do not decide how running peers forward events. The Spark session comes from
`quillcast.pipeline`. Importing this package loads neither Spark nor Arrow.
"""
