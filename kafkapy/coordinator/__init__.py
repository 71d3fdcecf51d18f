"""Coordinators: groups, offsets and transactions as shards over the partitions of Kafka's internal topics."""
