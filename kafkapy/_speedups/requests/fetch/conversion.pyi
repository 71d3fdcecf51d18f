"""Has no Python interface: called by fetch_request.pyx and through NetworkRequest (fetch_conversion.pxd)."""
