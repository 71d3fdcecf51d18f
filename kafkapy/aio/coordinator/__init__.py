"""aiokafka's `aiokafka.coordinator`: what asyncio clients name of it."""
