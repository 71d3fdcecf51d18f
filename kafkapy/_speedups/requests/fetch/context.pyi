"""Has no Python interface: used by fetch_request.pyx (fetch_context.pxd)."""
