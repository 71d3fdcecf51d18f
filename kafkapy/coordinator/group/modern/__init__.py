"""Groups whose assignment the coordinator computes: consumer groups and share groups."""
