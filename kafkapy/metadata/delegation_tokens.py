"""The nodes of delegation tokens, in Kafka's layout.

    /delegation_token/tokens/<id>                       the token without its secret; JSON of version 1, or 3
    /delegation_token/token_changes/token_change_<seq>  the id of a changed token

Source: kafka.zk.DelegationTokenInfoZNode and kafka.server.DelegationTokenManagerZk.
"""

from __future__ import annotations

import json
from typing import Any, Final

from kafkapy.metadata.znodes import desanitize, sanitize
from kafkapy.security.delegation_tokens import TokenInformation
from kafkapy.security.principal import KafkaPrincipal

TOKENS: Final = "/delegation_token/tokens"
TOKEN_CHANGES: Final = "/delegation_token/token_changes"
TOKEN_CHANGE: Final = "token_change_"
WITHOUT_REQUESTER: Final = 1
"""The only version that brokers before 3.3 read."""
WITH_REQUESTER: Final = 3


def token_path(token_id: str) -> str:
    """The path of a token."""
    return f"{TOKENS}/{token_id}"


def encode_token(token: TokenInformation) -> bytes:
    """A token, encoded.

    Version 3 names the requester of a token that its owner has not asked for; all others have version 1.
    """
    is_own = token.requester == token.owner
    value = {
        "version": WITHOUT_REQUESTER if is_own else WITH_REQUESTER,
        "owner": sanitize(str(token.owner)),
        **({} if is_own else {"tokenRequester": sanitize(str(token.requester))}),
        "renewers": [sanitize(str(each)) for each in token.renewers],
        "issueTimestamp": token.issue_timestamp,
        "maxTimestamp": token.max_timestamp,
        "expiryTimestamp": token.expiry_timestamp,
        "tokenId": token.token_id,
    }
    return json.dumps(value, separators=(",", ":")).encode()


def decode_token(data: bytes) -> TokenInformation:
    """A token, decoded from versions 1 to 3. ValueError for anything else."""
    try:
        value: dict[str, Any] = json.loads(data)
        version = value["version"]
        if not 0 < version <= WITH_REQUESTER:
            raise ValueError(f"the version {version} is not supported")
        owner = _principal(value["owner"])
        return TokenInformation(
            token_id=str(value["tokenId"]),
            owner=owner,
            requester=_principal(value["tokenRequester"]) if version >= WITH_REQUESTER else owner,
            renewers=tuple(map(_principal, value["renewers"])),
            issue_timestamp=int(value["issueTimestamp"]),
            max_timestamp=int(value["maxTimestamp"]),
            expiry_timestamp=int(value["expiryTimestamp"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a field is missing or has a wrong type: {error}") from None


def _principal(text: str) -> KafkaPrincipal:
    return KafkaPrincipal.parse(desanitize(text))
