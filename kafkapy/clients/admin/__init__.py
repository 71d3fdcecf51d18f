"""The admin client: `AdminCore` (coroutines), made of one module per family of requests, and `KafkaAdminClient`."""
