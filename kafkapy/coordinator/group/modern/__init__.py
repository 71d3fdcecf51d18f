"""Groups whose assignment the coordinator computes: what consumer groups and share groups have in common."""
