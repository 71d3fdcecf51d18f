"""Assignors of consumers where kafka-python has them. Clients import these; nothing of the coordinators comes along."""
