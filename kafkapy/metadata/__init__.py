"""Cluster metadata: where it is kept, how it is encoded, and the copy every broker answers from."""
