"""Fetched batches, their records and the order in which a consumer reads them."""
