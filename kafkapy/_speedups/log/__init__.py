"""The partition log: segments, indexes, producer state, appends, reads, recovery, cleaning and moves."""
