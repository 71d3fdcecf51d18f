"""The controller: which broker leads which partition, topics and their settings."""
