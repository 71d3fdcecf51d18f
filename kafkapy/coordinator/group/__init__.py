"""The group coordinator: consumer groups and the offsets they commit."""
