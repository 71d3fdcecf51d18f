"""OAUTHBEARER (RFC 7628): messages, JSON web tokens and key sets."""
