"""Lets go of large structures bit by bit.

A request of a million entries is a million objects, and freeing them at once keeps the GIL for a tenth of a second. A
worker thread does it instead, a millisecond at a time. What somebody else has a reference to is left as it is.
"""
