"""Produce: decode, handle, reply."""
