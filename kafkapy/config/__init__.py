"""Configuration keys (`config_def`, `broker`, `topic`, `clients`) and files (`properties`)."""
