"""OffsetCommit on the network threads."""
