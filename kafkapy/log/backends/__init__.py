"""Storage backends: the homes of segments.

`base` is the contract; `local` and `memory` are built in and registered through register_storage_backends.
"""
