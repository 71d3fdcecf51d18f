"""Has no Python interface: used by the decoders of Produce and Fetch (named_partitions.pxd)."""
