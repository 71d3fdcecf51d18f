"""Records on the wire and on disk: batches, codecs, control records, the formats before v2, and validation."""
