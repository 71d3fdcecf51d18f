"""Counts and cuts messages of protocol buffers; called from Python only."""
