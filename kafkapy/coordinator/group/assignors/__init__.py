"""Server-side assignors of the consumer protocol (KIP-848): interface and built-in ones."""
