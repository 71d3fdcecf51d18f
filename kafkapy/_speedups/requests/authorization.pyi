"""Has no Python interface: used by the request kernels (authorization.pxd)."""
