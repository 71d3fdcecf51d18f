"""SaslHandshake, API key 17."""

from kafkapy.protocol.schema import Request, Response, array, int16, string


class SaslHandshakeRequest(Request, key=17, versions="0-1"):
    """Names the SASL mechanism that the client wants to use."""

    mechanism: str = string()


class SaslHandshakeResponse(Response, key=17, versions="0-1"):
    """Whether the mechanism can be used, and which ones can."""

    error_code: int = int16(default=0)
    mechanisms: list[str] = array(string)
