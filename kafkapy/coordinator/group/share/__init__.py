"""Share groups (KIP-932) in the group coordinator: members, assignments, and the share-partitions that have a state."""
