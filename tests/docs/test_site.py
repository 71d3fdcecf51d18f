"""The pages: every link leads somewhere, and the site builds from them without a warning and without the network."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import docs_site
import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "plugins").glob("*/README.md")),
]
CODE = re.compile(r"^(`{3,})[^\n]*\n.*?^\1$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def links(text: str) -> Iterator[tuple[str, str]]:
    """(file, anchor) of each link that stays here. A link's text may be code."""
    for match in docs_site.LINK.finditer(CODE.sub(lambda found: "x" if "\n" not in found[0] else "", text)):
        target, _, anchor = match["target"].partition("#")
        if "://" not in target and not target.startswith("mailto:"):
            yield target, anchor


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as mkdocs and the usual sites of repositories make them."""
    found: set[str] = set()
    plain = re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    for heading in HEADING.findall(plain):
        words = re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading)
        found.add(re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", words).strip().lower()))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    wrong = []
    for target, anchor in links(page.read_text(encoding="utf-8")):
        file = (page.parent / target).resolve() if target else page
        if not file.exists() or not file.is_relative_to(ROOT):
            wrong.append(target)
        elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text(encoding="utf-8")):
            wrong.append(f"{target}#{anchor}")
    assert wrong == []


def test_the_search_for_links_finds_them() -> None:
    text = "[a](b.md#c) ![p](q.svg) `[no](link)` [x `y`](z.py)\n```\n[no](code.md)\n```\n[out](https://example.org)"
    assert list(links(text)) == [("b.md", "c"), ("q.svg", ""), ("z.py", "")]
    assert anchors("# A `b` c\n## Ten tasks, three tools\n```\n# no\n```") == {"a-b-c", "ten-tasks-three-tools"}


def nav() -> set[str]:
    def pages(entry: object) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        elif isinstance(entry, list):
            for each in entry:
                yield from pages(each)
        elif isinstance(entry, dict):
            yield from pages(list(entry.values()))

    return set(pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))


def test_the_menu_has_every_page() -> None:
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert pages <= nav()
    assert {f"api/{name}.md" for name in docs_site.API} <= nav()


def test_the_home_page_leads_to_each_page_for_newcomers() -> None:
    targets = {target for target, _ in links((ROOT / "docs" / "index.md").read_text(encoding="utf-8"))}
    tutorials = {path.name for path in (ROOT / "docs").glob("tutorial-*.md")}
    assert len(tutorials) >= 4
    assert {"start.md", "coming-from.md", "faq.md", "limits.md", "deploy.md", *tutorials} <= targets


def test_the_copy_has_its_own_links(tmp_path: Path) -> None:
    site = docs_site.Site(tmp_path)
    site.make()
    pages = sorted(tmp_path.rglob("*.md"))
    assert len(pages) > 60
    wrong = []
    for page in pages:
        text = page.read_text(encoding="utf-8")
        if page.is_relative_to(tmp_path / "source"):
            continue
        assert all(found["name"].startswith('title="') for found in docs_site.FENCE.finditer(text))
        for target, _ in links(text):
            file = (page.parent / target).resolve()
            if target and (not file.is_file() or not file.is_relative_to(tmp_path)):
                wrong.append(f"{page.relative_to(tmp_path)}: {target}")
    assert wrong == []


@pytest.mark.timeout(900)
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    script = [sys.executable, str(ROOT / "scripts" / "docs_site.py"), "--site", str(tmp_path)]
    done = subprocess.run(script, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [version] = [path for path in tmp_path.iterdir() if path.is_dir()]
    start = (version / "start.html").read_text(encoding="utf-8")
    assert "Five minutes" in start
    assert "KafkaProducer" in (version / "api" / "clients.html").read_text(encoding="utf-8")
    assert (tmp_path / "versions.json").exists()
    foreign = {
        (path.name, address)
        for path in version.rglob("*.html")
        for address in re.findall(
            r'<(?:script|link|img|iframe)\b[^>]*?(?:src|href)="(https?://[^"]*)"', path.read_text(encoding="utf-8")
        )
    }
    assert foreign == set()


def test_versions_are_listed_with_the_newest_first(tmp_path: Path) -> None:
    for name in ("0.9.0", "0.10.0", "0.2.1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").touch()
    (tmp_path / "no version").mkdir()
    docs_site.write_list_of_versions(tmp_path)
    listed = yaml.safe_load((tmp_path / "versions.json").read_text())
    assert [(each["version"], each["aliases"]) for each in listed] == [
        ("0.10.0", ["latest"]), ("0.9.0", []), ("0.2.1", []),
    ]  # fmt: skip
    assert "url=0.10.0/index.html" in (tmp_path / "index.html").read_text()
