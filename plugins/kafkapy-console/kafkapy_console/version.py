"""The version of the console."""

from importlib.metadata import PackageNotFoundError, version

__all__ = ["__version__"]

try:
    __version__ = version("kafkapy-console")
except PackageNotFoundError:  # a source tree that is not installed
    __version__ = "0.1.0"
