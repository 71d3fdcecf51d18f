"""Defects of foreign clients that no broker can help: the tests that meet them, by name, may fail once.

A test that is not named here has one run. A name stands for the test in each of its forms; with a form in brackets,
for the forms whose id has that text in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

DEFECTS: Final[Mapping[str, tuple[str, ...]]] = {
    "librdkafka #5456: send_offsets_to_transaction does not return when a broker was killed meanwhile": (
        "test_offsets_are_committed_with_the_transaction_only",
        "test_what_was_decided_before_a_kill_is_done_after_it",
        "test_each_record_passes_a_pipeline_exactly_once",
        "test_a_million_records_pass_a_pipeline_exactly_once",
    ),
    "kafka-python 3.0.12: after a poll() that gives up while the member joins, polls do not return": (
        "test_members_of_one_kind_share_a_group[kafka-python]",
        "test_members_of_all_kinds_share_one_group",
        "test_we_share_a_group_with_others[kafka-python]",
        "test_a_group_survives_members_that_come_and_go",
        "test_a_group_survives_a_minute_of_members_that_come_and_go",
        "test_java_consumers_come_and_go_among_the_others",
    ),
}


def defect_of(name: str) -> str | None:
    """The defect that the test with this name and form may meet, or None."""
    test, _, form = name.partition("[")
    for defect, listed in DEFECTS.items():
        for each in listed:
            known, _, wanted = each.partition("[")
            if known == test and wanted.rstrip("]") in form:
                return defect
    return None
