"""Configuration: what keys there are (`config_def`, `broker`, `topic`, `clients`), and how files are read (`properties`)."""
