"""GRPO as pure tensor functions: advantages, per-token loss, aggregation, statistics.

Nothing here knows models, devices, processes or files; every function can be checked against its formula.
"""
