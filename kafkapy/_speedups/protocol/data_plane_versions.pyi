PRODUCE: tuple[int, int, int]
PRODUCE_VERSIONS: str
PRODUCE_FLEXIBLE_FROM: str
FETCH: tuple[int, int, int]
FETCH_VERSIONS: str
FETCH_FLEXIBLE_FROM: str
