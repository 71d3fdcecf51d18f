"""The state of share partitions on their leader: what is in flight, and whose."""
