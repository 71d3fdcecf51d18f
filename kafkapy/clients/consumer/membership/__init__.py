"""A consumer's membership in its group: both group protocols, assignors, heartbeats and committed offsets."""
