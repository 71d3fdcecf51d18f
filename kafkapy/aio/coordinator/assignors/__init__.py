"""aiokafka's `aiokafka.coordinator.assignors`: the consumers' assignors."""
