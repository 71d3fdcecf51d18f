"""Has no Python interface: called by the Processor and by request_driver.pyx (produce_request.pxd)."""
