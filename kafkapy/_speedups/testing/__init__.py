"""Kernels for tests only. Wheels do not contain them."""
