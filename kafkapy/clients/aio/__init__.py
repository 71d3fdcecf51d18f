"""The asyncio clients, with aiokafka's interface.

They run the cores of the synchronous clients on the user's loop.
"""
