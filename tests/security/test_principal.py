"""Principals: how they are written, and what makes two of them the same."""

from __future__ import annotations

import pytest

from kafkapy.security.principal import ANONYMOUS, KafkaPrincipal


def test_a_principal_survives_its_text() -> None:
    for text in ("User:alice", "User:CN=a,OU=b:c", "Group:x"):
        assert str(KafkaPrincipal.parse(text)) == text
    assert KafkaPrincipal.parse("User:ANONYMOUS") == ANONYMOUS


@pytest.mark.parametrize("text", ["", "alice", ":alice", "User:"])
def test_text_without_type_or_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Type:name"):
        KafkaPrincipal.parse(text)


def test_how_one_authenticated_is_no_part_of_who_one_is() -> None:
    by_token = KafkaPrincipal("User", "alice", token_authenticated=True)
    assert by_token == KafkaPrincipal("User", "alice")
    assert len({by_token, KafkaPrincipal("User", "alice")}) == 1
    assert by_token != KafkaPrincipal("Group", "alice")
