"""Declarations of messages: one module per API or family of internal records.

Import the module you need; the registry imports the modules of APIs on first use, so that a start does not pay for
all of them.
"""
