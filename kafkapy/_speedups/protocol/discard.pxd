"""Frees large structures bit by bit.

A request of a million entries is a million objects, and freeing them at once keeps the GIL for a tenth of a second. A
worker thread frees them instead, a millisecond at a time. Objects with other references stay unchanged.
"""
