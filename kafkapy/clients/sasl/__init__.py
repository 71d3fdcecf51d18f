"""SASL mechanisms of the clients."""
