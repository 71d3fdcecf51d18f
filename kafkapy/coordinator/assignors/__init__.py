"""Consumers' assignors at kafka-python's import paths.

Clients import these; they load nothing of the coordinators.
"""
