"""The producer's accumulator, batches and Produce frames."""
