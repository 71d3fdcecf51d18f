"""Functions for Python only; see loading.pyx."""
