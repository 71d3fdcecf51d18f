"""The installed plugins: the entry points of the group ``kafkapy``.

`kafkapy.plugins` loads them.

`importlib.metadata` takes tens of ms to import and to read every distribution, a twentieth of the broker's start, so
directories of sys.path are looked through here; it is asked only for what else sys.path has, zip archives. Source of
the format: https://packaging.python.org/en/latest/specifications/entry-points/.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from typing import Final, NamedTuple

from kafkapy.errors import PluginError

ENTRY_POINT_GROUP: Final = "kafkapy"


class InstalledPlugin(NamedTuple):
    """An entry point: name, ``module:attribute``, and the distribution that brings it."""

    name: str
    value: str
    distribution: str

    def load(self) -> object:
        """The object that the entry point names. Raises whatever its import does."""
        module, _, attributes = self.value.partition("[")[0].partition(":")
        loaded: object = importlib.import_module(module.strip())
        for attribute in filter(None, attributes.strip().split(".")):
            loaded = getattr(loaded, attribute)
        return loaded


def installed_plugins() -> list[InstalledPlugin]:
    """The plugins of all installed distributions, by name.

    PluginError when two of them have one name.
    """
    found: dict[str, InstalledPlugin] = {}
    for distribution, text in _distributions():
        for name, value in _entry_points(text):
            plugin = InstalledPlugin(name, value, distribution)
            first = found.setdefault(name, plugin)
            if first.value != value:
                raise PluginError(f"two plugins are named {name}: {first.value} and {value}")
    return [found[name] for name in sorted(found)]


def _distributions() -> Iterator[tuple[str, str]]:
    """Name and entry_points.txt of every distribution that has our group; the first one on sys.path of each name."""
    header = f"[{ENTRY_POINT_GROUP}]".encode()
    seen: set[str] = set()
    for directory in dict.fromkeys(sys.path):
        for name, text in _in_directory(directory or "."):
            normal = name.lower().replace("-", "_").replace(".", "_")
            if normal not in seen:
                seen.add(normal)
                if header in text:
                    yield name, text.decode(errors="replace")


def _in_directory(directory: str) -> Iterator[tuple[str, bytes]]:
    try:
        with os.scandir(directory) as entries:
            paths = [entry.path for entry in entries if entry.name.endswith((".dist-info", ".egg-info"))]
    except NotADirectoryError:
        yield from _in_archive(directory)
        return
    except OSError:
        return
    for path in paths:
        try:
            with open(os.path.join(path, "entry_points.txt"), "rb") as file:  # noqa: PTH118, PTH123 - Path is slower
                text = file.read()
        except OSError:
            text = b""
        yield os.path.basename(path).rpartition(".")[0].partition("-")[0], text  # noqa: PTH119


def _in_archive(path: str) -> Iterator[tuple[str, bytes]]:
    from importlib.metadata import distributions

    for each in distributions(path=[path]):
        yield each.metadata["Name"], (each.read_text("entry_points.txt") or "").encode()


def _entry_points(text: str) -> Iterator[tuple[str, str]]:
    group = None
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1]
        elif group == ENTRY_POINT_GROUP and line and not line.startswith("#"):
            name, _, value = line.partition("=")
            yield name.strip(), value.strip()
