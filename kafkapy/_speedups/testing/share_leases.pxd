"""A lease without an acknowledgement, for tests of the share coordinator."""
