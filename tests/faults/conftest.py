"""What the sweeps run on."""

from __future__ import annotations

from log.conftest import fast_directory

__all__ = ["fast_directory"]
