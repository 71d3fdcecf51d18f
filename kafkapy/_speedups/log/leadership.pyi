"""Nothing here is for Python: PartitionLog has it as methods."""
