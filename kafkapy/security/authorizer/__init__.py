"""Authorizers: the contract (`base`) and the built-in ones, registered through `register_authorizers`."""
