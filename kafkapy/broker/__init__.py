"""The broker: KafkaServer, the dispatch of requests, one handler per API, and what runs in the background."""
