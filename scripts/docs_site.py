"""Build the documentation as a site: `make docs`.

    scripts/docs_site.py [--site build/site] [--source-only]

The pages of docs/ are written for a reader of the repository. A copy of them becomes the source of the site: links to
the README, CONTRIBUTING and to plugins lead to pages, links to source files to pages with the file in it, names of code
blocks to their titles, and pages of the API are added from the docstrings. mkdocs.yml has the rest. The site lies in
build/site/VERSION, with a list of versions beside it for the menu; versions built before stay.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "build" / "site-source"
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "plugins/kafkapy-spark/README.md": "plugins/kafkapy-spark.md",
    "plugins/kafkapy-console/README.md": "plugins/kafkapy-console.md",
    "plugins/template/README.md": "plugins/template.md",
    "plugins/template": "plugins/template.md",
}
"""Files outside of docs/ that are pages of the site."""
LANGUAGES = {".py": "python", ".pyx": "cython", ".pxd": "cython", ".pyi": "python", ".yml": "yaml", ".yaml": "yaml",
             ".properties": "properties", ".json": "json", ".sh": "bash"}  # fmt: skip
LINK = re.compile(r"(?P<head>!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()(?P<target>[^()\s]+)\)")
FENCE = re.compile(r"^```(?P<language>\w+)[ \t]+(?P<name>\S+)$", re.MULTILINE)
PARTS = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
API = {
    "clients": (
        "Clients",
        "`from kafkapy import KafkaProducer` works too. [Clients](../clients.md) explains their use.",
        ("kafkapy.clients.producer.producer.KafkaProducer", "kafkapy.clients.consumer.consumer.KafkaConsumer",
         "kafkapy.clients.share.consumer.KafkaShareConsumer",
         "kafkapy.clients.admin.kafka_admin_client.KafkaAdminClient", "kafkapy.arrow"),
    ),
    "asyncio": (
        "asyncio",
        "Each name is in `kafkapy.aio` too. [asyncio](../asyncio.md) explains their use.",
        ("kafkapy.clients.aio.producer.AIOKafkaProducer", "kafkapy.clients.aio.consumer.AIOKafkaConsumer",
         "kafkapy.clients.aio.share_consumer.AIOKafkaShareConsumer"),
    ),
    "types": ("Types and errors", "", ("kafkapy.types", "kafkapy.errors", "kafkapy.serializer", "kafkapy.structs")),
    "testing": (
        "Testing", "[Testing](../testing.md) explains their use.",
        ("kafkapy.testing.broker.Broker", "kafkapy.testing.cluster.Cluster"),
    ),
    "plugins": ("Plugins", "[Plugins](../plugins.md) explains the hooks.", ("kafkapy.hookspecs", "kafkapy.plugins")),
}  # fmt: skip
"""name: (title, first sentence, objects) of each page of the API."""


class Site:
    """The copy of the pages, and the source files that they link to."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.linked: set[Path] = set()

    def make(self) -> None:
        """Write the whole copy."""
        shutil.rmtree(self.source, ignore_errors=True)
        docs = ROOT / "docs"
        for path in sorted(docs.rglob("*")):
            if path.is_file():
                target = self.source / path.relative_to(docs)
                target.parent.mkdir(parents=True, exist_ok=True)
                if path.suffix == ".md":
                    target.write_text(self.page(path, target.relative_to(self.source)), encoding="utf-8")
                else:
                    shutil.copy2(path, target)
        for name, place in PAGES.items():
            if name not in ("README.md", "plugins/template") and (ROOT / name).exists():
                target = self.source / place
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(self.page(ROOT / name, Path(place)), encoding="utf-8")
        for name, (title, text, objects) in API.items():
            target = self.source / "api" / f"{name}.md"
            target.parent.mkdir(parents=True, exist_ok=True)
            blocks = "\n\n".join(f"::: {each}" for each in objects)
            target.write_text(f"# {title}\n\n{text}\n\n{blocks}\n", encoding="utf-8")
        for path in sorted(self.linked):
            self.source_page(path)

    def page(self, path: Path, place: Path) -> str:
        """A page with links for its place on the site."""
        text = path.read_text(encoding="utf-8")
        parts = PARTS.split(text)
        for number, part in enumerate(parts):
            if part.startswith("```"):
                parts[number] = FENCE.sub(r'```\g<language> title="\g<name>"', part)
            else:
                parts[number] = LINK.sub(lambda match: self.link(match, path, place), part)
        return "".join(parts)

    def link(self, match: re.Match[str], path: Path, place: Path) -> str:
        """A link of a page, with its target on the site."""
        target, hash_, anchor = match["target"].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return match[0]
        file = (path.parent / target).resolve()
        found = self.place_of(file)
        if found is None:
            # A folder or a picture that is no page: the words stay.
            return match["head"].removeprefix("!")[1:-2]
        relative = os.path.relpath(found, place.parent)
        return f"{match['head']}{relative}{hash_}{anchor})"

    def place_of(self, file: Path) -> Path | None:
        """Where a file of the repository is on the site, None for one that is not."""
        docs = ROOT / "docs"
        if file.is_relative_to(docs):
            return file.relative_to(docs) if file.is_file() else None
        if not file.is_relative_to(ROOT):
            return None
        name = str(file.relative_to(ROOT))
        if name in PAGES:
            return Path(PAGES[name])
        if file.is_file():
            self.linked.add(file)
            return Path("source") / f"{name}.md"
        return None

    def source_page(self, path: Path) -> None:
        """A page with a source file in it."""
        name = path.relative_to(ROOT)
        target = self.source / "source" / f"{name}.md"
        target.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8")
        longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=3) + 1
        fence = "`" * longest
        language = LANGUAGES.get(path.suffix, "text")
        front = "---\nsearch:\n  exclude: true\nhide: [toc]\n---\n"
        body = f'{fence}{language} linenums="1"\n{text.rstrip()}\n{fence}\n'
        target.write_text(f"{front}\n# {name.name}\n\n`{name}`\n\n{body}", encoding="utf-8")


def version() -> str:
    """The version of the project."""
    found = re.search(r'__version__ = "([^"]+)"', (ROOT / "kafkapy" / "version.py").read_text(encoding="utf-8"))
    assert found is not None
    return found[1]


def newest_first(versions: Iterable[str]) -> list[str]:
    """Versions, the newest first."""
    return sorted(versions, key=lambda text: [int(part) if part.isdigit() else -1 for part in text.split(".")])[::-1]


def write_list_of_versions(site: Path) -> None:
    """versions.json for the menu (the format of mike), and a page that leads to the newest version."""
    found = newest_first(each.name for each in site.iterdir() if (each / "index.html").exists())
    entries = [{"version": each, "title": each, "aliases": ["latest"] if each == found[0] else []} for each in found]
    (site / "versions.json").write_text(json.dumps(entries, indent=1) + "\n")
    start = f"{found[0]}/index.html"
    (site / "index.html").write_text(
        f'<!doctype html><meta charset="utf-8"><title>kafkapy</title>'
        f'<meta http-equiv="refresh" content="0; url={start}">'
        f'<a href="{start}">kafkapy</a>\n'
    )


def main(arguments: Sequence[str]) -> int:
    """Build. The exit code is mkdocs's, which counts a warning as a failure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--site", type=Path, default=ROOT / "build" / "site")
    parser.add_argument("--source-only", action="store_true", help="only the copy of the pages")
    given = parser.parse_args(arguments)
    Site(SOURCE).make()
    if given.source_only:
        return 0
    place = given.site.resolve() / version()
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--config-file", ROOT / "mkdocs.yml",
         "--site-dir", place],
        cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=False,
    )  # fmt: skip
    if done.returncode == 0:
        write_list_of_versions(given.site.resolve())
        print(place / "index.html")
        print(f"search and versions need a server: {sys.executable} -m http.server -d {given.site}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
