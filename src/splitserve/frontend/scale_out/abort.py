"""POST /inference/v1/abort_requests: gives up answers that somebody else asked for."""

from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from splitserve.errors import CallerError
from splitserve.frontend.body import ClientGone, read_body
from splitserve.frontend.failures import failure_of
from splitserve.frontend.request_id import LiveIds
from splitserve.frontend.scale_out.requests import decode

_MAX_BODY_BYTES = 1 << 20


class _Abort(msgspec.Struct, frozen=True):
    """Ids as the answers carry them (``request_id``, ``id``)."""

    request_ids: Annotated[tuple[str, ...], msgspec.Meta(max_length=8192)]


def abort_endpoint(live: LiveIds) -> Route:
    """Answers 200 with an empty body, whether or not the ids are known, as vLLM does."""

    async def abort(request: Request) -> Response:
        try:
            body = await read_body(request.scope, request.receive, _MAX_BODY_BYTES)
            for request_id in decode(_Abort, body).request_ids:
                live.abort(request_id)
        except ClientGone:
            pass
        except CallerError as error:
            failure = failure_of(error, "")
            return Response(failure.body, failure.status, media_type="application/json")
        return Response(status_code=200)

    return Route("/inference/v1/abort_requests", abort, methods=["POST"])
