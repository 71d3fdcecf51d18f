"""The producer: its core for any asyncio loop, and the synchronous KafkaProducer."""
