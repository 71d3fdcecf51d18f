"""AlterUserScramCredentials, API key 51."""

from kafkapy.protocol.schema import Request, Response, Struct, array, bytes_, int8, int16, int32, string


class AlterUserScramCredentialsRequest(Request, key=51, versions="0", flexible="0+"):
    """Adds, replaces and deletes SCRAM credentials (KIP-554)."""

    class Deletion(Struct):
        name: str = string()
        mechanism: int = int8()

    class Upsertion(Struct):
        name: str = string()
        mechanism: int = int8()
        iterations: int = int32()
        salt: bytes = bytes_()
        salted_password: bytes = bytes_()

    deletions: list[Deletion] = array(Deletion)
    upsertions: list[Upsertion] = array(Upsertion)


class AlterUserScramCredentialsResponse(Response, key=51, versions="0", flexible="0+"):
    """The outcome for every user."""

    class Result(Struct):
        user: str = string()
        error_code: int = int16(default=0)
        error_message: str | None = string(nullable="0+", default=None)

    throttle_time_ms: int = int32(default=0)
    results: list[Result] = array(Result)
