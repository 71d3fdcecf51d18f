"""docs/architecture.md: every function it links to is in its file, and its picture is drawn from the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "architecture.md"
TEXT = PAGE.read_text(encoding="utf-8")
LINK = re.compile(r"\[`?([^]`]+)`?\]\(([^)]+)\)")
NAMED = sorted({(name, target) for name, target in LINK.findall(TEXT) if target.endswith((".py", ".pyx"))})


def test_the_page_has_seven_walks_with_links() -> None:
    walks = [part for part in TEXT.split("\n## ") if "\n1. " in part and "kafkapy/" in part]
    assert [walk.partition("\n")[0] for walk in walks] == [
        "A secured connection", "A Produce", "A replicated Produce", "A ShareFetch", "An OffsetCommit",
        "A configuration key",
        "A `send()`",
    ]  # fmt: skip
    for walk in walks:
        hops = re.findall(r"^\d+\. .*$", walk, re.MULTILINE)
        assert len(hops) > 4
        assert all(LINK.search(hop) for hop in hops)


@pytest.mark.parametrize(("name", "target"), NAMED)
def test_each_linked_function_is_in_its_file(name: str, target: str) -> None:
    source = (PAGE.parent / target).resolve()
    assert source.is_file()
    if name != f"tests/{source.name}":
        defined = rf"^\s*(?:(?:async )?def|class|cdef\b[^(\n]*?)[ *]{name}\s*[(:\[]|^{name}\b.*="
        assert re.search(defined, source.read_text(encoding="utf-8"), re.MULTILINE), f"{target} defines no {name}"


def test_other_links_lead_somewhere() -> None:
    assert [target for _, target in LINK.findall(TEXT) if not (PAGE.parent / target).exists()] == []


def test_the_picture_is_what_the_code_says() -> None:
    script = [sys.executable, str(ROOT / "scripts" / "architecture-picture"), "--check"]
    assert subprocess.run(script).returncode == 0, "run scripts/architecture-picture"
