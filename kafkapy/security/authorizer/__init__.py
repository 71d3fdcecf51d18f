"""Authorizers: the contract (`base`) and the built-in ones.

Plugins and kafkapy register them through `register_authorizers`.
"""
