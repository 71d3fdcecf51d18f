"""A group of appends from Python (see group_append.pyx)."""
