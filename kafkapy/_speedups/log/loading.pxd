"""Functions for Python only; see log_loading.pyx."""
