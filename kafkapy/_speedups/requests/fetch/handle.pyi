"""Has no Python interface: called by the Processor and by request_driver.pyx (fetch_request.pxd)."""
