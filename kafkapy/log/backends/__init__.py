"""Where segments live. `base` is the contract; `local` and `memory` are built in and registered through
register_storage_backends."""
