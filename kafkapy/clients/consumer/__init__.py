"""The consumer: subscription, fetching, offsets, and the user's interface."""
