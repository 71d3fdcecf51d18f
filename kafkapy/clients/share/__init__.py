"""The client of share groups (KIP-932): queues on topics."""
