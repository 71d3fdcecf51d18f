"""Has no Python interface: used by produce_request.pyx (produce_response.pxd)."""
