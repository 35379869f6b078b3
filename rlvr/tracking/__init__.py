"""Everything a run writes and shows: run folder, metrics, events, ledger, checkpoints, console, curve, summary.

The run folder is the interface to the outside (DESIGN 9). This package knows the records and the
configuration; it must not know actors, engines or the driver, which talks to it through `tracker.Tracker`.
"""
