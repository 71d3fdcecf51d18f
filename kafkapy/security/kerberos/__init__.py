"""Kerberos: names of principals, tickets and the gssapi library, for brokers and clients."""
