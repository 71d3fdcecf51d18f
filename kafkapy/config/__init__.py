"""Configuration: what keys there are (`config_def`, `broker`, `topic`), and how files are read (`properties`)."""
