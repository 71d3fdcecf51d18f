"""The broker: KafkaServer, request dispatch, API handlers and background work."""
