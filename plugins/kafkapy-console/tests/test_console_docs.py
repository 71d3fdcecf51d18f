"""docs/console.md: each row of the comparison names tests that exist, and each picture is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from kafkapy_console.settings import Settings

HERE = Path(__file__).parent
DOCS = HERE.parents[2] / "docs"
PAGE = (DOCS / "console.md").read_text(encoding="utf-8")


def names_of_tests() -> set[str]:
    return {
        node.name
        for path in HERE.glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_what_the_console_has_is_tested() -> None:
    _, _, comparison = PAGE.partition("## Comparison")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in comparison.splitlines() if line[:2] == "| "]
    assert len(rows) > 30
    for screen, here, _, named in rows[1:]:
        assert here.startswith("no:") or re.findall(r"`test_\w+`", named), screen
    assert set(re.findall(r"`(test_\w+)`", PAGE)) - names_of_tests() == set()


def test_the_pictures_are_there_and_small() -> None:
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", PAGE)
    assert pictures
    assert sorted(path.relative_to(DOCS).as_posix() for path in (DOCS / "console").iterdir()) == sorted(pictures)
    for name in pictures:
        assert (DOCS / name).stat().st_size < 100_000, name


def test_the_settings_of_the_page_are_taken(tmp_path: Path) -> None:
    one, several = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    file = tmp_path / "console.toml"
    file.write_text(several, encoding="utf-8")
    settings = Settings.from_file(file)
    assert [(each.name, each.read_only) for each in settings.clusters] == [("production", True), ("staging", False)]
    assert [rule.clusters for rule in settings.roles] == [(), ("staging",)]
    file.write_text(one, encoding="utf-8")
    settings = Settings.from_file(file)
    assert (settings.name, settings.login, list(settings.users)) == ("production", "users", ["ann"])
    assert len(settings.roles) == 2
    assert (len(settings.masks), settings.metrics_urls) == (1, ("http://kafka1:9400/metrics",))
    assert (settings.audit_file, settings.schema_dir) == (tmp_path / "audit.jsonl", tmp_path / "schemas")
