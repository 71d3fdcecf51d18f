"""Print requirements of pyproject.toml, one for each line: `requirements.py build runtime test lint`.

`build` are those of the build system, `runtime` those of the package; any other word is an extra.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def main(names: list[str]) -> None:
    """Print the requirements of the named groups."""
    with (Path(__file__).parent.parent / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)
    groups = {
        "build": project["build-system"]["requires"],
        "runtime": project["project"]["dependencies"],
        **project["project"]["optional-dependencies"],
    }
    for name in names:
        if name not in groups:
            sys.exit(f"requirements.py: no group {name}; there are {', '.join(groups)}")
        print(*groups[name], sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
