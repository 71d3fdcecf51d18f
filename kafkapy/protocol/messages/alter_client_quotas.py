"""AlterClientQuotas, API key 49."""

from kafkapy.protocol.schema import Request, Response, Struct, array, boolean, float64, int16, int32, string


class AlterClientQuotasRequest(Request, key=49, versions="0-1", flexible="1+"):
    """Sets and removes quotas of users, client ids and addresses (KIP-546)."""

    class Entry(Struct):
        class Entity(Struct):
            entity_type: str = string()
            entity_name: str | None = string(nullable="0+")

        class Op(Struct):
            key: str = string()
            value: float = float64()
            remove: bool = boolean()

        entity: list[Entity] = array(Entity)
        ops: list[Op] = array(Op)

    entries: list[Entry] = array(Entry)
    validate_only: bool = boolean()


class AlterClientQuotasResponse(Response, key=49, versions="0-1", flexible="1+"):
    """The outcome for every entity."""

    class Entry(Struct):
        class Entity(Struct):
            entity_type: str = string()
            entity_name: str | None = string(nullable="0+")

        error_code: int = int16(default=0)
        error_message: str | None = string(nullable="0+", default=None)
        entity: list[Entity] = array(Entity)

    throttle_time_ms: int = int32(default=0)
    entries: list[Entry] = array(Entry)
