"""Contracts of plugin hooks: checks of the objects that they give.

An error is one sentence: plugin, hook and the missing member.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kafkapy.errors import KafkaError, PluginError

__all__ = ["MEMBERS", "check_factories", "make", "named"]

MEMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "register_authorizers": (
        "decisions_epoch",
        "configure",
        "authorize",
        "authorize_by_resource_type",
        "create_acls",
        "delete_acls",
        "acls",
        "close",
    ),
    "register_sasl_mechanisms": ("name", "configure", "server", "close"),
    "register_sasl_callback_handlers": ("configure", "close"),
    "register_principal_builders": ("configure", "build", "close"),
    "register_storage_backends": ("persistent", "open_log", "list_logs", "rename_log", "delete_log"),
    "register_metadata_stores": (
        "start",
        "close",
        "session_id",
        "is_shared",
        "session_timeout_s",
        "last_transaction",
        "get",
        "get_many",
        "exists",
        "children",
        "commit",
        "watch_node",
        "watch_children",
        "listen_session",
        "create",
        "set",
        "delete",
        "ensure_path",
        "ensure_paths",
        "subtree",
    ),
    "register_partition_assignors": (
        "name",
        "supported_protocols",
        "subscription_user_data",
        "assign",
        "on_assignment",
    ),
    "register_group_assignors": ("name", "assign"),
    "register_metrics_reporters": ("start", "close"),
    "register_client_telemetry_receivers": ("receive", "close"),
    "register_replica_selectors": ("select", "close"),
    "register_quota_managers": (
        "quota_metric_tags",
        "quota_limit",
        "update_quota",
        "remove_quota",
        "quota_reset_required",
        "update_cluster_metadata",
        "close",
    ),
    "register_create_topic_policies": ("validate", "close"),
    "register_alter_config_policies": ("validate", "close"),
}
"""Methods and attributes of what the factories of a hook make."""


def check_factories(plugin: str, hook: str, result: Any) -> Mapping[str, Any]:
    """The mapping that a `register_*` hook gave.

    PluginError when it is none, or when a value cannot be called.
    """
    if not isinstance(result, Mapping):
        raise PluginError(
            f"plugin {plugin}: {hook} gave {_kind(result)}, not a mapping from names to something that can be called"
        )
    for name, factory in result.items():
        if not isinstance(name, str):
            raise PluginError(f"plugin {plugin}: {hook} gave the name {name!r}, which is {_kind(name)}, not a text")
        if not callable(factory):
            raise PluginError(f"plugin {plugin}: {hook} gave {_kind(factory)} for {name!r}, which cannot be called")
    return result


def make(plugin: str, hook: str, name: str, factory: Any, *arguments: Any) -> Any:
    """The object that a factory makes, checked against the hook's contract.

    PluginError when it lacks a member. KafkaErrors that the factory raises about its configuration pass.
    """
    try:
        made = factory(*arguments)
    except KafkaError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise PluginError(f"plugin {plugin}: {name!r} of {hook} cannot be made: {reason}") from error
    missing = [member for member in MEMBERS.get(hook, ()) if not (hasattr(type(made), member) or hasattr(made, member))]
    if missing:
        raise PluginError(
            f"plugin {plugin}: {name!r} of {hook} makes {_kind(made)}, which has no {named(missing)}; the contract "
            "stands in kafkapy/hookspecs.py"
        )
    return made


def named(names: Iterable[str]) -> str:
    """a, b and c."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _kind(value: Any) -> str:
    name = "None" if value is None else type(value).__name__
    return name if value is None else f"an {name}" if name[:1].lower() in "aeiou" else f"a {name}"
