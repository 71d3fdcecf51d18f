"""Clients of any Kafka cluster; nothing here needs the broker's code."""
