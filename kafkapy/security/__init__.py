"""The principal of a connection, and the authorizer that limits it."""
