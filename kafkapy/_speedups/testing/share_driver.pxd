"""Members of a share partition in C, for benchmarks: they fetch and acknowledge without Python in between."""
