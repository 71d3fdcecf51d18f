"""Messages of the Kafka protocol: compiled plans, the decoder and the encoder."""
