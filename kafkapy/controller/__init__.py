"""The controller: partition leaders, topics and their settings."""
