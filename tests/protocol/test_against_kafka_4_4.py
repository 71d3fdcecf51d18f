"""Every declared message has, in every version that Apache Kafka 4.4 knows, the layout that it has there.

tests/reference/kafka_4_4/layouts.txt: message, versions, and the fields in order with their types; "#3" is tag 3.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkapy.protocol.registry import ApiKeys
from kafkapy.protocol.schema import Field, Struct, VersionRange

LAYOUTS = Path(__file__).parents[1] / "reference" / "kafka_4_4" / "layouts.txt"
OURS = {cls.NAME: cls for entry in ApiKeys for cls in (entry.request, entry.response)}
GONE_IN_4 = {ApiKeys.LEADER_AND_ISR, ApiKeys.STOP_REPLICA, ApiKeys.UPDATE_METADATA, ApiKeys.CONTROLLED_SHUTDOWN}
NOT_SERVED_YET = {ApiKeys.ADD_RAFT_VOTER}
"""Their newest layouts are declared with the broker's part of them."""
OTHER_NAMES = {"generation_id": "generation_id_or_member_epoch"}


def layouts() -> dict[str, dict[VersionRange, str]]:
    found: dict[str, dict[VersionRange, str]] = {}
    for line in LAYOUTS.read_text().splitlines():
        name, versions, layout = line.split(" ", 2)
        found.setdefault(name, {})[VersionRange.parse(versions)] = layout
    return found


THEIRS = layouts()


def kind_of(field: Field, version: int, flexible: bool) -> str:
    nullable = version in field.nullable
    if field.kind == "array":
        assert field.element is not None
        kind = ("CompactArrayOf" if flexible else "ArrayOf") + ("?" if nullable else "")
        return f"{kind}[{kind_of(field.element, version, flexible)}]"
    if field.kind == "struct":
        assert field.struct is not None
        return layout_of(field.struct, version, flexible)
    if field.kind in ("string", "bytes", "records"):
        compact = "COMPACT_" if flexible and field.compactable else ""
        return compact + ("NULLABLE_" if nullable else "") + field.kind.upper()
    return field.kind.upper()


def layout_of(struct: type[Struct], version: int, flexible: bool) -> str:
    plain, tagged = [], []
    for field in struct._fields:
        if version not in field.versions:
            continue
        kind = kind_of(field, version, flexible)
        if version in field.tagged:
            tagged.append((field.tag or 0, f"{field.name}#{field.tag} {kind}"))
        else:
            plain.append(f"{field.name} {kind}")
    return "{" + ", ".join([*plain, *(text for _, text in sorted(tagged))]) + "}"


@pytest.mark.parametrize("name", sorted(OURS))
def test_layouts_of_kafka_4_4(name: str) -> None:
    ours = OURS[name]
    if ours.API_KEY in GONE_IN_4:
        assert name not in THEIRS
        return
    newest = max(each.high for each in THEIRS[name])
    assert (ours.VERSIONS.high < newest) == (ours.API_KEY in NOT_SERVED_YET)
    if ours.API_KEY in NOT_SERVED_YET:
        return
    for versions, layout in THEIRS[name].items():
        for version in range(versions.low, versions.high + 1):
            mine = layout_of(ours, version, version in ours.FLEXIBLE)
            for old, new in OTHER_NAMES.items():
                mine = mine.replace(f"{old} ", f"{new} ") if f"{new} " in layout else mine
            assert mine.replace("_", "") == layout.replace("_", ""), version
