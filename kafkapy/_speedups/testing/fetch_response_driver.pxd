"""A driver of the follower's response reader, for tests (see fetch_response_driver.pyx)."""
