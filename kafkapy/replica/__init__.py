"""The replicas this broker hosts."""
