"""Apache Arrow tables of consumers and producers. Needs pyarrow; imported on first use only."""
