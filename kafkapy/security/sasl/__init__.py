"""SASL on the broker's side.

`base` has the contracts, `authenticator` the state machine; each mechanism has a module.
Mechanisms are registered through `register_sasl_mechanisms`.
"""
