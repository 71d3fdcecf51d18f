"""Server-side assignors of the consumer protocol (KIP-848): the interface, and those that kafkapy brings."""
