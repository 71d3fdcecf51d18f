"""The checks of `kafkapy doctor`, one module for each area.

A check is a function that gets a `Subject` and yields findings. It changes nothing on the machine.
"""
