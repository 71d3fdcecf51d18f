"""The I/O thread of a client and its channels."""
