"""OAUTHBEARER: a bearer token (RFC 7628).

The first of these that is set gives the tokens:

    sasl.oauth.token.provider, oauth.cb        the user's code (`token_providers.py`)
    sasl.login.callback.handler.class          the user's code, or the name of Kafka's class
    sasl.oauthbearer.jwt.retriever.class       likewise
    sasl.oauthbearer.token.endpoint.url        a token endpoint over https, or a file (`token_endpoint.py`)
    unsecuredLogin... in sasl.jaas.config      tokens without signature, for development

A token is used for all connections and refreshed before it ends (`refresh.py`). Use this mechanism over TLS only.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from kafkapy.clients.sasl.base import SaslSettings
from kafkapy.clients.sasl.refresh import ClientToken, FreshToken, RefreshSettings, TokenSource
from kafkapy.errors import ConfigError, KafkaError, SaslAuthenticationFailedError
from kafkapy.security.oauthbearer.messages import AFTER_ERROR, ClientFirstMessage, MessageError, check_extensions

__all__ = ["OAuthBearerClient", "OAuthBearerLogin", "create_login"]

MECHANISM: Final = "OAUTHBEARER"
URL_KEY: Final = "sasl.oauthbearer.token.endpoint.url"
HANDLER_KEY: Final = "sasl.login.callback.handler.class"
RETRIEVER_KEY: Final = "sasl.oauthbearer.jwt.retriever.class"
PROVIDER_KEYS: Final = ("sasl.oauth.token.provider", "oauth.cb", HANDLER_KEY, RETRIEVER_KEY)
PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
UNSECURED_HANDLER: Final = f"{PACKAGE}internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"
ASSERTION_RETRIEVER: Final = f"{PACKAGE}JwtBearerJwtRetriever"
ENDPOINT_CLASSES: Final = frozenset(
    f"{PACKAGE}{name}"
    for name in (
        "OAuthBearerLoginCallbackHandler",
        "secured.OAuthBearerLoginCallbackHandler",
        "DefaultJwtRetriever",
        "ClientCredentialsJwtRetriever",
        "FileJwtRetriever",
    )
)
UNSECURED_PREFIX: Final = "unsecuredLogin"
RESERVED_CLAIMS: Final = ("iat", "exp")
DEFAULT_LIFETIME_S: Final = 3600
MOST_SHOWN: Final = 300

log = logging.getLogger(__name__)


class OAuthBearerClient:
    """One exchange: the token, and for a refusal the acknowledgement."""

    mechanism = MECHANISM

    def __init__(self, token: ClientToken) -> None:
        self._message = ClientFirstMessage(token.value, extensions=token.extensions)
        self._refused = False
        self.complete = False

    def initial(self) -> bytes:
        return self._message.encode()

    def evaluate(self, challenge: bytes) -> bytes | None:
        if self.complete or self._refused:
            raise SaslAuthenticationFailedError(f"{MECHANISM} failed: a token of the broker came after the end")
        if not challenge:
            self.complete = True
            return None
        self._refused = True
        log.debug("The broker refused the token: %r", challenge[:MOST_SHOWN])
        return AFTER_ERROR


class OAuthBearerLogin:
    """The token of one client."""

    mechanism = MECHANISM

    def __init__(self, source: TokenSource, settings: RefreshSettings) -> None:
        self._token = FreshToken(source, settings)

    async def exchange(self, host: str) -> OAuthBearerClient:
        return OAuthBearerClient(await self._token.get(host))

    async def close(self) -> None:
        """Ends the refreshes."""
        await self._token.close()


def create_login(settings: SaslSettings) -> OAuthBearerLogin:
    """The login by the settings of a client. ConfigError when nothing gives tokens."""
    return OAuthBearerLogin(_source(settings), RefreshSettings.of(settings.config))


def _source(settings: SaslSettings) -> TokenSource:
    config = settings.config
    given = {key: config[key] for key in PROVIDER_KEYS if config.get(key)}
    named = {key: value for key, value in given.items() if value in _known_classes(value)}
    providers = {key: value for key, value in given.items() if key not in named}
    if len(providers) > 1:
        first, second = list(providers)[:2]
        raise ConfigError(second, "set", f"only one of {first} and {second} may be set")
    for key, provider in providers.items():
        from kafkapy.clients.sasl.token_providers import ProviderSource

        if isinstance(provider, str) and provider.startswith(PACKAGE):
            reason = "is not known here; set a callable, or the path package.module:name of one"
            raise ConfigError(key, provider, reason)
        return ProviderSource(key, provider, _extensions(settings), config.get("sasl.oauthbearer.config") or "")
    unsecured = UNSECURED_HANDLER in named.values()
    if not unsecured and (
        config.get(URL_KEY) or named or (config.get("sasl.oauthbearer.method") or "").lower() == "oidc"
    ):
        return _endpoint(settings, ASSERTION_RETRIEVER in named.values())
    if unsecured or config.get("enable.sasl.oauthbearer.unsecure.jwt") or _unsecured_options(settings.options):
        return _unsecured(settings)
    raise ConfigError(
        URL_KEY, "", f"{MECHANISM} needs {URL_KEY} with a client id and secret, or sasl.oauth.token.provider"
    )


def _known_classes(value: Any) -> frozenset[Any]:
    """Kafka's class names that stand for something here; empty for an object."""
    if not isinstance(value, str):
        return frozenset()
    return ENDPOINT_CLASSES | {UNSECURED_HANDLER, ASSERTION_RETRIEVER}


def _endpoint(settings: SaslSettings, by_assertion: bool) -> TokenSource:
    from kafkapy.clients.sasl.token_endpoint import EndpointSettings, EndpointSource, FileSource, basic_authorization
    from kafkapy.security.oauthbearer.https import Timeouts, trust

    config, options = settings.config, settings.options
    url = (config.get(URL_KEY) or "").strip()
    try:
        parts = urlsplit(url)
        port_is_valid = parts.port is None or parts.port > 0
    except ValueError as error:
        raise ConfigError(URL_KEY, url, f"is no URL: {error}") from None
    extensions = _extensions(settings)
    if parts.scheme == "file":
        path = Path(unquote(parts.path))
        if parts.netloc not in ("", "localhost") or not path.is_absolute():
            raise ConfigError(URL_KEY, url, "must name an absolute path of this machine")
        return FileSource(path, extensions)
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_valid:
        raise ConfigError(URL_KEY, url, "must be a URL of https, http or file")
    if parts.scheme == "http":
        log.warning("%s is no https URL: the client's secret and its token are readable on the network", URL_KEY)
    scope = (options.get("scope") or config.get("sasl.oauthbearer.scope") or "").strip()
    fields = {"scope": scope} if scope else {}
    authorization = None
    if by_assertion:
        from kafkapy.clients.sasl.assertions import GRANT_TYPE, assertion_source

        assertion = assertion_source(config)

        def body() -> Mapping[str, str]:
            return {"grant_type": GRANT_TYPE, "assertion": assertion(), **fields}

    else:
        client_id, secret = _credentials(settings)
        authorization = basic_authorization(client_id, secret, bool(config.get("sasl.oauthbearer.header.urlencode")))

        def body() -> Mapping[str, str]:
            return {"grant_type": "client_credentials", **fields}

    return EndpointSource(
        EndpointSettings(
            url,
            authorization,
            Timeouts.of(config.get("sasl.login.connect.timeout.ms"), config.get("sasl.login.read.timeout.ms")),
            config.get("sasl.login.retry.backoff.ms", 100),
            config.get("sasl.login.retry.backoff.max.ms", 10_000),
            trust(options, "sasl.jaas.config"),
            extensions,
        ),
        body,
    )


def _credentials(settings: SaslSettings) -> tuple[str, str]:
    """Client id and secret: options of sasl.jaas.config (KIP-768), or keys (KIP-1139)."""
    prefix = "sasl.oauthbearer.client.credentials."
    found = []
    for option, key in (("clientId", f"{prefix}client.id"), ("clientSecret", f"{prefix}client.secret")):
        value = settings.config.get(key)
        text = str(getattr(value, "value", value) or settings.options.get(option) or "").strip()
        if not text:
            raise ConfigError(key, "", f"must be set for {URL_KEY}, or {option} in sasl.jaas.config")
        found.append(text)
    return found[0], found[1]


def _extensions(settings: SaslSettings) -> dict[str, str]:
    """Extensions of sasl.jaas.config (extension_<name>) and of librdkafka's key."""
    found = {
        name.removeprefix("extension_"): value
        for name, value in settings.options.items()
        if name.startswith("extension_")
    }
    for pair in (settings.config.get("sasl.oauthbearer.extensions") or "").split(","):
        if pair.strip():
            name, equals, value = pair.partition("=")
            if not equals:
                raise ConfigError("sasl.oauthbearer.extensions", pair, "must be name=value pairs, separated by commas")
            found[name.strip()] = value.strip()
    return _checked(found)


def _checked(extensions: dict[str, str]) -> dict[str, str]:
    try:
        check_extensions(extensions)
    except MessageError as error:
        raise ConfigError("sasl.jaas.config", None, str(error)) from None
    return extensions


def _unsecured_options(options: Mapping[str, str]) -> bool:
    return any(name.startswith(UNSECURED_PREFIX) for name in options)


def _unsecured(settings: SaslSettings) -> TokenSource:
    """Kafka's options, or librdkafka's text: principal=alice scope=a,b lifeSeconds=60."""
    from kafkapy.clients.sasl.token_endpoint import UnsecuredSource

    options = dict(settings.options)
    text = settings.config.get("sasl.oauthbearer.config") or ""
    if text and not _unsecured_options(options):
        options |= _librdkafka_options(text)
    claims: dict[str, Any] = {}
    kinds: tuple[tuple[str, Callable[[str, str], Any]], ...] = (
        ("StringClaim_", lambda _, value: value),
        ("NumberClaim_", _number),
        ("ListClaim_", lambda _, value: value[1:].split(value[0]) if value else []),
    )
    for kind, parse in kinds:
        prefix = UNSECURED_PREFIX + kind
        for option, value in options.items():
            if option.startswith(prefix):
                name = option.removeprefix(prefix)
                if name in RESERVED_CLAIMS:
                    reason = f"the claim {name} is computed, so {option} is not allowed"
                    raise ConfigError("sasl.jaas.config", None, reason)
                claims[name] = parse(option, value)
    principal_claim = options.get(f"{UNSECURED_PREFIX}PrincipalClaimName") or "sub"
    if not isinstance(claims.get(principal_claim), str) or not claims[principal_claim].strip():
        raise ConfigError(
            "sasl.jaas.config", None, f"the option {UNSECURED_PREFIX}StringClaim_{principal_claim} is missing"
        )
    lifetime = options.get(f"{UNSECURED_PREFIX}LifetimeSeconds") or str(DEFAULT_LIFETIME_S)
    if not re.fullmatch("[0-9]{1,9}", lifetime) or int(lifetime) == 0:
        raise ConfigError(
            "sasl.jaas.config", None, f"the option {UNSECURED_PREFIX}LifetimeSeconds must be a number of seconds"
        )
    prefix = f"{UNSECURED_PREFIX}Extension_"
    extensions = _extensions(settings) | {
        name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)
    }
    return UnsecuredSource(claims, int(lifetime), _checked(extensions))


def _number(option: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ConfigError("sasl.jaas.config", None, f"the option {option} must be a number") from None


def _librdkafka_options(text: str) -> dict[str, str]:
    """The options that librdkafka's text of an unsecured token stands for."""
    pairs = dict(pair.partition("=")[::2] for pair in text.split())
    principal_claim = pairs.pop("principalClaimName", "sub")
    scope_claim = pairs.pop("scopeClaimName", "scope")
    found = {f"{UNSECURED_PREFIX}PrincipalClaimName": principal_claim}
    for name, value in pairs.items():
        if name == "principal":
            found[f"{UNSECURED_PREFIX}StringClaim_{principal_claim}"] = value
        elif name == "scope":
            found[f"{UNSECURED_PREFIX}ListClaim_{scope_claim}"] = f",{value}"
        elif name == "lifeSeconds":
            found[f"{UNSECURED_PREFIX}LifetimeSeconds"] = value
        elif name.startswith("extension_"):
            found[f"{UNSECURED_PREFIX}Extension_{name.removeprefix('extension_')}"] = value
        else:
            raise _unknown(name)
    return found


def _unknown(name: str) -> KafkaError:
    return ConfigError(
        "sasl.oauthbearer.config", name, "must have principal=, scope=, lifeSeconds= or extension_<name>= only"
    )
