"""Proof that both ends of a connection know one secret, before any frame is read. Sans-IO.

    listener -> opener    GREETING, nonce L
    opener -> listener    nonce O, HMAC-SHA256(secret, "opener" L O)
    listener -> opener    HMAC-SHA256(secret, "listener" L O)

The opener proves first, so that whoever knocks learns nothing but that a secret is asked for. Both
nonces are in both proofs: an answer heard before is worth nothing. The two words keep a proof from
being sent back to its maker. It says who is there, not that nobody stands between: for that, TLS.
"""

import hashlib
import hmac
from typing import Final, Protocol

GREETING: Final = b"SPLSECR1"
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
_OPENER: Final = b"opener"
_LISTENER: Final = b"listener"


class Refused(Exception):
    """The peer is none of ours. The text is for our log; the peer is told nothing."""


class Side(Protocol):
    """One end. ``done`` once the peer has proven itself; ``rest`` is what came after its proof."""

    done: bool
    rest: bytes

    def start(self) -> bytes:
        """What to send first, perhaps nothing."""
        ...

    def feed(self, data: bytes) -> bytes:
        """What to send in answer. Raises Refused; the connection is of no use afterwards."""
        ...


class ListenerSide:
    """``nonce`` are NONCE_BYTES random bytes, never used before."""

    def __init__(self, secret: bytes, nonce: bytes) -> None:
        self.done = False
        self.rest = b""
        self._secret = secret
        self._nonce = nonce
        self._read = b""

    def start(self) -> bytes:
        return GREETING + self._nonce

    def feed(self, data: bytes) -> bytes:
        # The opener waits for our proof: there is nothing else it may have sent.
        if self.done or len(self._read) + len(data) > NONCE_BYTES + PROOF_BYTES:
            raise Refused("it sent something else than its proof")
        self._read += data
        if len(self._read) < NONCE_BYTES + PROOF_BYTES:
            return b""
        theirs, proof = self._read[:NONCE_BYTES], self._read[NONCE_BYTES:]
        if not hmac.compare_digest(proof, _proof(self._secret, _OPENER, self._nonce, theirs)):
            raise Refused("it does not know the secret")
        self.done = True
        return _proof(self._secret, _LISTENER, self._nonce, theirs)


class OpenerSide:
    """``nonce`` are NONCE_BYTES random bytes, never used before."""

    def __init__(self, secret: bytes, nonce: bytes) -> None:
        self.done = False
        self.rest = b""
        self._secret = secret
        self._nonce = nonce
        self._theirs = b""
        self._read = b""

    def start(self) -> bytes:
        return b""

    def feed(self, data: bytes) -> bytes:
        self._read += data
        if not self._theirs:
            return self._greeted()
        if not self.done:
            self._proven()
        return b""

    def _greeted(self) -> bytes:
        if self._read[: len(GREETING)] != GREETING[: len(self._read)]:
            raise Refused("it does not ask for a secret, or is no worker")
        theirs = self._read[len(GREETING) :]
        if len(theirs) > NONCE_BYTES:
            raise Refused("it sent more than its greeting")
        if len(theirs) < NONCE_BYTES:
            return b""
        self._theirs, self._read = theirs, b""
        return self._nonce + _proof(self._secret, _OPENER, theirs, self._nonce)

    def _proven(self) -> None:
        if len(self._read) < PROOF_BYTES:
            return
        proof, self.rest = self._read[:PROOF_BYTES], self._read[PROOF_BYTES:]
        ours = _proof(self._secret, _LISTENER, self._theirs, self._nonce)
        if not hmac.compare_digest(proof, ours):
            raise Refused("it does not know the secret")
        self._read, self.done = b"", True


def _proof(secret: bytes, side: bytes, listeners: bytes, openers: bytes) -> bytes:
    # HMAC takes a key and the same with zero bytes behind it for one; a digest has one length.
    key = hashlib.sha256(secret).digest()
    return hmac.digest(key, side + listeners + openers, "sha256")
