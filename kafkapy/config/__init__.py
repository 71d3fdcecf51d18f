"""Configuration: the keys (`config_def`, `broker`, `topic`, `clients`), and how files are read (`properties`)."""
