"""The transaction coordinator: `coordinator.py` serves handlers, `shard.py` decides."""
