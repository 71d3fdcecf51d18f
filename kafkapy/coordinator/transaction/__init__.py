"""The transaction coordinator: `coordinator.py` is what handlers call, `shard.py` what decides."""
