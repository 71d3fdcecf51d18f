"""Which tests have a second run: only those that are listed with a client's defect, and those exist."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from interop.client_defects import DEFECTS, defect_of

HERE = Path(__file__).parent


def test_every_test_that_is_listed_exists() -> None:
    there = {
        node.name
        for path in HERE.glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    listed = {each.partition("[")[0] for tests in DEFECTS.values() for each in tests}
    assert listed - there == set()


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        ("test_members_of_all_kinds_share_one_group", True),
        ("test_members_of_one_kind_share_a_group[kafka-python]", True),
        ("test_members_of_one_kind_share_a_group[kafkapy]", False),
        ("test_we_share_a_group_with_others[True-range of kafka-python]", True),
        ("test_we_share_a_group_with_others[True-range of aiokafka]", False),
        ("test_idempotent_producer[kafka-python]", False),
        ("test_members_of_all_kinds", False),
    ],
)
def test_a_name_stands_for_its_forms(name: str, listed: bool) -> None:
    assert (defect_of(name) is not None) == listed


def test_tests_that_are_not_listed_have_one_run(request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("flaky") is None
