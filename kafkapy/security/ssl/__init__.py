"""TLS settings, key stores and trust stores, and the mapping from certificates to principals."""
