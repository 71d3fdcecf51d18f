"""Offsets in Spark's JSON."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from kafkapy_spark.offsets import from_json, parse_offsets, parse_partitions, to_json

from kafkapy.types import TopicPartition

PARTITIONS = st.builds(TopicPartition, st.text("abc-._1", min_size=1, max_size=5), st.integers(0, 1000))
OFFSETS = st.dictionaries(PARTITIONS, st.integers(0, 2**63 - 1))


def test_the_form_is_that_of_sparks_own_source() -> None:
    offsets = {TopicPartition("b", 10): 5, TopicPartition("a", 2): 7, TopicPartition("b", 2): 0}
    assert json.dumps(to_json(offsets)) == '{"a": {"2": 7}, "b": {"2": 0, "10": 5}}'
    assert parse_offsets('{"b":{"10":5,"2":0},"a":{"2":7}}') == offsets


@given(OFFSETS)
def test_offsets_come_back_as_they_were(offsets: dict[TopicPartition, int]) -> None:
    text = json.dumps(to_json(offsets))
    assert from_json(json.loads(text)) == offsets == parse_offsets(text)


@given(OFFSETS, st.randoms())
def test_equal_offsets_make_equal_texts(offsets: dict[TopicPartition, int], random: object) -> None:
    """Spark takes different texts for new data."""
    items = list(offsets.items())
    random.shuffle(items)  # type: ignore[attr-defined]
    assert json.dumps(to_json(dict(items))) == json.dumps(to_json(offsets))


def test_partitions() -> None:
    assert parse_partitions('{"a":[1,0],"b":[]}') == [TopicPartition("a", 1), TopicPartition("a", 0)]
