"""docs/console.md: each row of the comparison names a test in Chromium, and each picture is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from kafkapy_console.settings import Settings

HERE = Path(__file__).parent
DOCS = HERE.parents[2] / "docs"
PAGE = (DOCS / "console.md").read_text(encoding="utf-8")


def functions(pattern: str) -> dict[str, set[str]]:
    """The functions of files with the names of their arguments: of tests and fixtures, the fixtures that they need."""
    return {
        node.name: {each.arg for each in node.args.args}
        for path in sorted(HERE.glob(pattern))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }


def in_chromium() -> set[str]:
    """The tests of test_console_browser*.py that need the browser, by whatever fixture."""
    needs = functions("test_console_browser*.py")
    every = functions("*.py") | needs

    def reaches(name: str, on_the_way: frozenset[str]) -> bool:
        needed = every.get(name, set()) - on_the_way
        return name == "chromium" or any(reaches(each, on_the_way | {name}) for each in needed)

    return {name for name in needs if name.startswith("test_") and reaches(name, frozenset())}


def test_tests_in_chromium_are_told_from_others() -> None:
    found = in_chromium()
    assert {"test_axe_finds_no_serious_fault", "test_keys_lead_to_pages", "test_replicas_are_moved_by_clicks"} <= found
    assert "test_pages_of_thousands_of_topics" not in found, "it asks over HTTP"
    assert "test_downloads" not in found


def test_what_the_console_has_is_tested_in_chromium() -> None:
    _, _, comparison = PAGE.partition("## Comparison")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in comparison.splitlines() if line[:2] == "| "]
    assert len(rows) > 30
    for screen, here, _, named in rows[1:]:
        assert here.startswith("no:") or in_chromium() & set(re.findall(r"`(test_\w+)`", named)), screen
    assert set(re.findall(r"`(test_\w+)`", PAGE)) - functions("test_*.py").keys() == set()


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
