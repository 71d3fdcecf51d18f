"""`kafkapy features`: describe, upgrade, downgrade and disable the cluster's features.

Counterpart of kafka-features.sh.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from kafkapy.errors import KafkaError
from kafkapy.metadata.features import BY_NAME, METADATA_VERSION, levels_of, metadata_level_of, metadata_name
from kafkapy.tools.lazy_group import CommandGroup
from kafkapy.tools.options import cluster_options, connected, json_option
from kafkapy.tools.output import Column, Output
from kafkapy.types import UpdateFeatureType

__all__ = ["features"]

COLUMNS = (
    Column("feature"),
    Column("supported"),
    Column("finalized", right=True),
    Column("means"),
    Column("epoch", right=True),
)

updates_argument = click.argument("updates", nargs=-1, metavar="FEATURE=LEVEL...")
release_option = click.option("--release", metavar="RELEASE", help="The levels of this release, such as 4.2.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Check the change without making it.")
unsafe_option = click.option("--unsafe", is_flag=True, help="Allow it even when metadata is lost.")


@click.group("features", cls=CommandGroup)
def features() -> None:
    """Show and change the finalized levels of the cluster's features."""


@features.command("describe")
@json_option
@cluster_options
def describe(settings: dict[str, object], as_json: bool) -> None:
    """List the features with their supported and finalized levels."""
    with connected(settings) as admin:
        found = admin.describe_features()
    rows = []
    for name, levels in sorted(found.items()):
        level = levels["finalized"][1] if "finalized" in levels else None
        rows.append(
            {
                "feature": name,
                "supported": "{}-{}".format(*levels["supported"]) if "supported" in levels else None,
                "finalized": level,
                "means": metadata_name(level) if name == METADATA_VERSION and level is not None else None,
                "epoch": levels.get("finalized_epoch"),
            }
        )
    Output(as_json).rows(rows, COLUMNS, "The cluster has no features.")


@features.command("upgrade")
@updates_argument
@release_option
@dry_run_option
@json_option
@cluster_options
def upgrade(
    settings: dict[str, object], updates: tuple[str, ...], release: str | None, dry_run: bool, as_json: bool
) -> None:
    """Finalize higher levels of features.

    A level of metadata.version may be a release, such as metadata.version=4.2.
    """
    _update(settings, _wanted(updates, release), UpdateFeatureType.UPGRADE, dry_run, as_json)


@features.command("downgrade")
@updates_argument
@release_option
@unsafe_option
@dry_run_option
@json_option
@cluster_options
def downgrade(
    settings: dict[str, object],
    updates: tuple[str, ...],
    release: str | None,
    unsafe: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Finalize lower levels of features; level 0 disables a feature."""
    _update(settings, _wanted(updates, release), _downgrade(unsafe), dry_run, as_json)


@features.command("disable")
@click.argument("names", nargs=-1, required=True, metavar="FEATURE...")
@unsafe_option
@dry_run_option
@json_option
@cluster_options
def disable(settings: dict[str, object], names: tuple[str, ...], unsafe: bool, dry_run: bool, as_json: bool) -> None:
    """Finalize level 0 of features."""
    _update(settings, dict.fromkeys(names, 0), _downgrade(unsafe), dry_run, as_json)


def _downgrade(unsafe: bool) -> UpdateFeatureType:
    return UpdateFeatureType.UNSAFE_DOWNGRADE if unsafe else UpdateFeatureType.SAFE_DOWNGRADE


def _wanted(updates: tuple[str, ...], release: str | None) -> dict[str, int]:
    if bool(updates) == bool(release):
        raise click.UsageError("Give FEATURE=LEVEL, or --release.")
    if release is not None:
        return _levels_of(release)
    wanted: dict[str, int] = {}
    for text in updates:
        name, equals, level = text.partition("=")
        named = metadata_level_of(level) if name == METADATA_VERSION else None
        if not name or not equals or not (level.isdecimal() or named):
            raise click.UsageError(f"{text!r} is not FEATURE=LEVEL.")
        wanted[name] = int(level) if named is None else named
    return wanted


def _levels_of(release: str) -> dict[str, int]:
    metadata_level = metadata_level_of(release)
    if metadata_level is None:
        raise click.UsageError(f"--release {release!r} is not a known release of Apache Kafka from 3.3 on.")
    return dict.fromkeys(BY_NAME, 0) | levels_of(metadata_level)


def _update(
    settings: dict[str, object], wanted: Mapping[str, int], kind: UpdateFeatureType, dry_run: bool, as_json: bool
) -> None:
    updates: dict[str, Any] = {name: (kind, level) for name, level in wanted.items()}
    with connected(settings) as admin:
        results = admin.update_features(updates, validate_only=dry_run)
    output = Output(as_json)
    if as_json:
        output.json(results)
    failed = {name: text for name, text in results.items() if text != "OK"}
    for name in [] if as_json else sorted(results.keys() - failed.keys()):
        output.say(f"Feature {name} {'could be' if dry_run else 'is'} at level {wanted[name]}.")
    if failed:
        raise KafkaError("; ".join(f"feature {name}: {text.partition(': ')[2]}" for name, text in failed.items()))
