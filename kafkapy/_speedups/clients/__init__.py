"""Kernels of the clients. They cimport no kernel of the broker."""
