"""Requests that the data plane serves without Python: the contract, authorization and the partition table."""
