"""aiokafka's `aiokafka.coordinator`: the parts that applications import."""
