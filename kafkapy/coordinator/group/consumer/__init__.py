"""Groups of the consumer protocol (ConsumerGroupHeartbeat, KIP-848)."""
