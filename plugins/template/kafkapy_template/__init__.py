"""A plugin for kafkapy to copy: an authorizer that denies topics by prefix."""
