"""Speed and memory, as ratios taken in one run where machines differ. `python -m benchmarks.NAME --help`."""
