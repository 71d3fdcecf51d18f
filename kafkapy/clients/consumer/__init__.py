"""The consumer: what is subscribed to, fetching, offsets, and the user's view of it."""
