"""Coordinators: groups, offsets and transactions as shards of internal topics."""
