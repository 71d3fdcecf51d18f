"""The admin client: `AdminCore` (coroutines) and `KafkaAdminClient`.

`AdminCore` has one module per family of requests.
"""
