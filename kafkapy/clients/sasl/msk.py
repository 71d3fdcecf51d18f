"""IAM authentication of Amazon MSK, by the package aws-msk-iam-sasl-signer-python.

MSK's brokers take a signed URL as the token of OAUTHBEARER. Java's clients of MSK have the mechanism AWS_MSK_IAM:

    security.protocol=SASL_SSL
    sasl.mechanism=AWS_MSK_IAM
    sasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required awsProfileName="dev";

The same settings work here, with the options awsProfileName, awsRoleArn, awsRoleSessionName and awsDebugCreds. The
option awsRegion is for regions that are neither in the broker's name nor in AWS_REGION. In Python,
`sasl_oauth_token_provider=MskTokenProvider("eu-west-1")` with the mechanism OAUTHBEARER does the same.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from typing import Any, Final

from kafkapy.clients.sasl.base import SaslSettings
from kafkapy.clients.sasl.oauthbearer import OAuthBearerLogin
from kafkapy.clients.sasl.refresh import ClientToken, RefreshSettings
from kafkapy.clients.sasl.token_providers import checked_token
from kafkapy.errors import ConfigError, KafkaConnectionError, SaslAuthenticationFailedError

__all__ = ["MskTokenProvider", "create_login"]

MECHANISM: Final = "AWS_MSK_IAM"
REGION_VARIABLES: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
_HOST: Final = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.(?:vpce\.)?amazonaws\.com(?:\.cn)?$")


def load_signer(key: str) -> Any:
    """The signer package. ConfigError for `key` when it is missing."""
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
    except ImportError as error:
        raise ConfigError(key, MECHANISM, f"IAM of MSK needs pip install 'kafkapy[msk]' ({error})") from None
    return MSKAuthTokenProvider


class MskTokenProvider:
    """Tokens of IAM for one region; also as sasl_oauth_token_provider.

    Credentials come from AWS's default chain, from a profile, or from a role.
    """

    def __init__(
        self,
        region: str,
        *,
        profile: str | None = None,
        role_arn: str | None = None,
        session_name: str | None = None,
        debug: bool = False,
    ) -> None:
        self._signer = load_signer("sasl.oauth.token.provider")
        self._region = region
        self._profile = profile
        self._role_arn = role_arn
        self._session_name = session_name
        self._debug = debug

    def token(self) -> tuple[str, int]:
        """A token and its end in ms since 1970.

        It may wait for AWS's services.
        """
        signer = self._signer
        if self._role_arn is not None:
            name = () if self._session_name is None else (self._session_name,)
            found = signer.generate_auth_token_from_role_arn(self._region, self._role_arn, *name)
        elif self._profile is not None:
            found = signer.generate_auth_token_from_profile(self._region, self._profile)
        else:
            found = signer.generate_auth_token(self._region, aws_debug_creds=self._debug)
        return str(found[0]), int(found[1])


class MskSource:
    """Tokens for brokers of one cluster, whose region their names tell."""

    def __init__(self, options: Mapping[str, str]) -> None:
        load_signer("sasl.mechanism")
        self._options = options

    async def token(self, host: str) -> ClientToken:
        """A new token.

        ConfigError when the region is unknown; KafkaConnectionError when AWS cannot be reached.
        """
        options = self._options
        provider = MskTokenProvider(
            self._region(host),
            profile=options.get("awsProfileName"),
            role_arn=options.get("awsRoleArn"),
            session_name=options.get("awsRoleSessionName"),
            debug=options.get("awsDebugCreds", "").lower() == "true",
        )
        try:
            token, expires_ms = await asyncio.to_thread(provider.token)
        except OSError as error:
            raise KafkaConnectionError(f"{MECHANISM}: {type(error).__name__}: {error}") from error
        except Exception as error:
            raise SaslAuthenticationFailedError(f"{MECHANISM} failed: {type(error).__name__}: {error}") from error
        return checked_token(token, expires_ms)

    def _region(self, host: str) -> str:
        match = _HOST.search(host.lower())
        found = self._options.get("awsRegion") or (match and match[1])
        for name in REGION_VARIABLES:
            found = found or os.environ.get(name)
        if not found:
            raise ConfigError(
                "sasl.jaas.config", None, f"the region of {host} is unknown: set the option awsRegion, or AWS_REGION"
            )
        return found


def create_login(settings: SaslSettings) -> OAuthBearerLogin:
    """The login by the options of IAMLoginModule. ConfigError without the signer package."""
    return OAuthBearerLogin(MskSource(settings.options), RefreshSettings.of(settings.config))
