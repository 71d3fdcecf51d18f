"""Assignors of consumers where aiokafka has them."""
