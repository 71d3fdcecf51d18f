"""One module per API key. Each declares what it serves and is found by KafkaApis without being listed anywhere:

    '''DescribeCluster, API key 60: versions served, behaviour, known gaps.'''
    REQUEST = DescribeClusterRequest
    RESPONSE = DescribeClusterResponse
    VERSIONS = VersionRange(0, 2)

    async def handle(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse: ...
    def error_response(request, error, message) -> Response          # where the error does not stand at the top level
"""
