"""The controller's events, one module each, with a `NAME` and a `run`.

KafkaController calls `run` while it is controller. Events of watched nodes also have the `PATH` whose children they
follow.
"""
