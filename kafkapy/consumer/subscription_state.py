"""kafka-python's `kafka.consumer.subscription_state`: the listeners of rebalances."""

from kafkapy.clients.consumer.subscription import AsyncConsumerRebalanceListener, ConsumerRebalanceListener

__all__ = ["AsyncConsumerRebalanceListener", "ConsumerRebalanceListener"]
