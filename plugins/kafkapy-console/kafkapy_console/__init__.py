"""A web console for Apache Kafka and kafkapy.

    kafkapy console --bootstrap-server localhost:9092

`create_app` gives the ASGI application, for servers other than the one of the command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkapy_console.version import __version__

if TYPE_CHECKING:
    from kafkapy_console.app import create_app
    from kafkapy_console.settings import Settings

__all__ = ["Settings", "__version__", "create_app"]


def __getattr__(name: str) -> Any:
    """The application and its settings are imported at first use."""
    if name == "create_app":
        from kafkapy_console.app import create_app

        return create_app
    if name == "Settings":
        from kafkapy_console.settings import Settings

        return Settings
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
