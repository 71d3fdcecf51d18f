"""Records on the wire and on disk.

Batches, codecs, control records, message formats v0 and v1, and validation.
"""
