"""The version of the distribution, read by the build and by ApiVersions logs."""

__version__ = "0.1.0"
