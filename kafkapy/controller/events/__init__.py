"""The controller's events, a module each: `NAME`, and `run`, which KafkaController calls while it is controller.

Events of watched nodes also have the `PATH` whose children they follow.
"""
