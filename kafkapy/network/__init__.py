"""Listeners and connections: what starts and stops the data plane's network threads."""
