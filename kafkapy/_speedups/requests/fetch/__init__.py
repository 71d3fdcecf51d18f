"""Fetch: sessions, decode, handle, reply."""
