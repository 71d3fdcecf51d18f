"""A fetcher without a thread and a socket, for tests (see stepped_fetcher.pyx)."""
