"""The producer: its core, which runs on any asyncio loop, and the synchronous KafkaProducer over it."""
