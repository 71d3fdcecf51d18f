"""OAUTHBEARER (RFC 7628): its messages, JSON web tokens and key sets, for brokers and clients."""
