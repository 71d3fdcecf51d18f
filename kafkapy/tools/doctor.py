"""`kafkapy doctor`: looks at a broker's machine and configuration, and advises changes.

It connects to nothing but the servers of the metadata store, and changes nothing. Apache Kafka has no counterpart.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from kafkapy.errors import KafkaError, PluginError
from kafkapy.tools.options import json_option, one_sentence
from kafkapy.tools.output import Column, Output

if TYPE_CHECKING:
    from kafkapy.tools.host_checks.finding import Finding, Subject

__all__ = ["doctor"]

COLUMNS: Final = (
    Column("area"),
    Column("subject"),
    Column("status"),
    Column("found"),
    Column("change"),
    Column("why"),
)
MARKS: Final[Mapping[str, tuple[str, str]]] = {
    "ok": ("ok", "green"),
    "unknown": ("unknown", "dim"),
    "warning": ("warning", "yellow"),
    "problem": ("problem", "bold red"),
}
"""The word and the style of each status on a terminal."""


@click.command("doctor")
@click.argument("properties", required=False, type=click.Path(dir_okay=False))
@click.option(
    "--override",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    help="Set one configuration key, over the file, as for kafkapy-server. Repeat it for more keys.",
)
@click.option("--all", "-a", "show_all", is_flag=True, help="Show the checks that passed too.")
@json_option
def doctor(properties: str | None, overrides: tuple[str, ...], show_all: bool, as_json: bool) -> None:
    """Check a broker's machine and configuration, and advise changes.

    PROPERTIES is the broker's configuration file; without one, the command checks the built-in configuration of one
    broker. Run it as the broker's user, on its machine, before the start or beside the running broker. It checks
    limits, disks, clock, ports, versions and the configuration, and changes nothing.

    The exit code is 1 when the broker would not start, or would not keep what it promises. Warnings do not change it.

    Example: kafkapy doctor config/server.properties
    """
    found = list(findings(properties, overrides))
    rows = [
        {
            "area": area,
            "subject": each.subject,
            "status": str(each.status),
            "found": each.found,
            "change": each.change,
            "why": each.why,
        }
        for area, each in found
    ]
    output = Output(as_json)
    if output.terminal:
        _show(output, rows, show_all)
    else:
        output.rows(rows if show_all or as_json else _notable(rows), COLUMNS)
    sys.exit(int(any(row["status"] == "problem" for row in rows)))


def findings(properties: str | None, overrides: Sequence[str]) -> Iterator[tuple[str, Finding]]:
    """(area, finding) of each check; a configuration that cannot be read ends them."""
    from kafkapy.tools.broker_run import broker_config, read_properties
    from kafkapy.tools.host_checks import clock, configuration, disks, limits, ports, versions
    from kafkapy.tools.host_checks.finding import Subject, problem

    try:
        config, _ = broker_config(read_properties(properties, overrides))
    except PluginError as error:
        installation = [each for each in versions.check_installation() if each.subject != "plugins"]
        change = "Install its distribution again, uninstall it, or disable the plugin."
        why = "The broker starts with all of its plugins or not at all."
        found = problem("plugins", one_sentence(error), change, why)
        yield from (("versions", each) for each in (*installation, found))
        return
    except KafkaError as error:
        yield from (("versions", each) for each in versions.check_installation())
        why = "The broker does not start with it."
        change = "Correct the key, or the path."
        yield "configuration", problem(properties or "--override", one_sentence(error), change, why)
        return
    subject = Subject(config, properties=properties)
    areas: Mapping[str, Callable[[Subject], Iterator[Finding]]] = {
        "versions": versions.check,
        "configuration": configuration.check,
        "limits": limits.check,
        "disks": disks.check,
        "clock": clock.check,
        "ports": ports.check,
    }
    for area, check in areas.items():
        try:
            yield from ((area, each) for each in check(subject))
        except OSError as error:  # a file vanished, or this user may not look
            why = "The other checks of this area did not run."
            change = "Run the command as the broker's user."
            yield area, problem(area, one_sentence(error), change, why)


def _notable(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [row for row in rows if row["status"] != "ok"]


def _show(output: Output, rows: Sequence[Mapping[str, Any]], show_all: bool) -> None:
    """Print a block for each finding, and a sentence with their numbers."""
    shown = rows if show_all else _notable(rows)
    for area in dict.fromkeys(row["area"] for row in shown):
        output.heading(area)
        for row in (row for row in shown if row["area"] == area):
            word, style = MARKS[row["status"]]
            output.say(f"  {word:8} {row['subject']}: {row['found']}", style)
            if row["change"]:
                output.say(f"           change: {row['change']}")
                output.say(f"           why: {row['why']}", "dim")
    counts = {status: sum(row["status"] == status for row in rows) for status in MARKS}
    output.heading(
        f"{len(rows)} checks",
        *(f"{count} {MARKS[status][0]}" for status, count in counts.items() if count),
    )
