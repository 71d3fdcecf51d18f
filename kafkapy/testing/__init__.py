"""What tests of kafkapy, and of programs that use it, start brokers with."""
