"""aiokafka's `aiokafka.admin.config_resource`."""

from kafkapy.clients.admin.configs import ConfigResource
from kafkapy.types import ConfigResourceType

__all__ = ["ConfigResource", "ConfigResourceType"]
