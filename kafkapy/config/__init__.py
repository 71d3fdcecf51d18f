"""Configuration: what keys there are (`config_def`, `broker`, `topic`, `clients`), how files are read (`properties`)."""
