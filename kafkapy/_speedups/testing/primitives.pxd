"""Kafka's primitive types, one by one, for Python (see primitives.pyx). Kernels use base/wire.pxd itself."""
