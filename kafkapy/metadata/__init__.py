"""Cluster metadata: the store, its encoding, and each broker's cached copy."""
