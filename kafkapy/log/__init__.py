"""Partition logs on disk: the log manager, loading and recovery, checkpoints, retention, storage backends."""
