"""ShareFetch and ShareAcknowledge."""
