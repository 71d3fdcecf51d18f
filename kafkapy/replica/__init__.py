"""The replicas that this broker hosts."""
