"""Envelope, API key 58."""

from kafkapy.protocol.schema import Request, Response, bytes_, int16


class EnvelopeRequest(Request, key=58, versions="0", flexible="0+"):
    """A broker passes a client's request on to the controller.

    It brings the client's principal (KIP-590).
    """

    request_data: bytes = bytes_()
    request_principal: bytes | None = bytes_(nullable="0+")
    client_host_address: bytes = bytes_()


class EnvelopeResponse(Response, key=58, versions="0", flexible="0+"):
    """The controller's answer to the request inside."""

    response_data: bytes | None = bytes_(nullable="0+", default=None)
    error_code: int = int16(default=0)
