"""Registers the built-in policy of client quotas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kafkapy.broker.quota_callback import DefaultQuotaCallback
from kafkapy.plugins import hookimpl

if TYPE_CHECKING:
    from kafkapy.broker.quota_callback import ClientQuotaCallback
    from kafkapy.config.broker import BrokerConfig

__all__ = ["register_quota_managers"]


@hookimpl
def register_quota_managers() -> Mapping[str, Callable[[BrokerConfig], ClientQuotaCallback]]:
    """The built-in policy of quotas."""
    return {"default": DefaultQuotaCallback}
