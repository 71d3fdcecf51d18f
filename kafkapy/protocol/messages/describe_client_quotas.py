"""DescribeClientQuotas, API key 48."""

from kafkapy.protocol.schema import Request, Response, Struct, array, boolean, float64, int8, int16, int32, string


class DescribeClientQuotasRequest(Request, key=48, versions="0-1", flexible="1+"):
    """Asks for the quotas of entities that match a filter (KIP-546)."""

    class Component(Struct):
        """A filter on one part of the entity.

        match_type: 0 exactly match, 1 the default entity, 2 any named one.
        """

        entity_type: str = string()
        match_type: int = int8()
        match: str | None = string(nullable="0+")

    components: list[Component] = array(Component)
    strict: bool = boolean()


class DescribeClientQuotasResponse(Response, key=48, versions="0-1", flexible="1+"):
    """The quotas of every entity that matches; null where the request failed."""

    class Entry(Struct):
        class Entity(Struct):
            entity_type: str = string()
            entity_name: str | None = string(nullable="0+")

        class Value(Struct):
            key: str = string()
            value: float = float64()

        entity: list[Entity] = array(Entity)
        values: list[Value] = array(Value)

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)
    entries: list[Entry] | None = array(Entry, nullable="0+")
