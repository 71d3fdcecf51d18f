"""Clients of Kafka clusters, independent of the broker's code."""
