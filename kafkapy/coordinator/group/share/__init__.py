"""Share groups (KIP-932) in the group coordinator: members, assignments, share-partitions with a state."""
