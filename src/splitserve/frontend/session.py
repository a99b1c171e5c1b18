"""The client's word that requests belong together: a hint where to send them, and nothing else."""

from hashlib import blake2b
from typing import Final

from starlette.types import Scope

_DIGEST_BYTES: Final = 16


def session_of(scope: Scope, header: str, owner: str) -> str:
    """A name for what the request says in ``header``, or "" where it says nothing.

    It is a hash, so that what goes on into logs and frames is short and never the client's own
    text. Two owners never share one.
    """
    wanted = header.lower().encode()
    for name, value in scope["headers"]:
        if name == wanted and value:
            said = len(owner.encode()).to_bytes(2, "little") + owner.encode() + value
            return blake2b(said, digest_size=_DIGEST_BYTES).hexdigest()
    return ""
