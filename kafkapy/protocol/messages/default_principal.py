"""The serialized form of a principal."""

from kafkapy.protocol.schema import Record, boolean, string


class DefaultPrincipalData(Record, versions="0", flexible="0+"):
    """A principal as brokers pass it to the controller in an Envelope."""

    type: str = string()
    name: str = string()
    token_authenticated: bool = boolean()
