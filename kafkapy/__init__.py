"""kafkapy: an Apache-Kafka-compatible event broker with its Python clients."""

from kafkapy.version import __version__

__all__ = ["__version__"]
