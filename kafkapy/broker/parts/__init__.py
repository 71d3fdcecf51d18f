"""The parts of a broker. Each starts and stops one thing.

KafkaServer has the list of them, in order.
"""
