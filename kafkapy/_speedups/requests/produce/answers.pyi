"""Has no Python interface: called through NetworkRequest and by request_driver.pyx (produce_answers.pxd)."""
