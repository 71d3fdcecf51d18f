"""The asyncio clients: the cores of the synchronous ones on the user's own loop, in aiokafka's shape."""
