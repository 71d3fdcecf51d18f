"""The reference page is what the keys say."""

from __future__ import annotations

from kafkapy.config.broker import BROKER_CONFIG_DEF
from kafkapy.config.reference import PAGE, main, page
from kafkapy.config.topic import TOPIC_CONFIG_DEF


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: make docs"
    assert main(["--check"]) == 0


def test_the_page_has_every_key_that_is_not_internal() -> None:
    text = page()
    for key in [*BROKER_CONFIG_DEF, *TOPIC_CONFIG_DEF]:
        assert (f"### `{key.name}`" in text) is not key.internal
