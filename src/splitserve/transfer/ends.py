"""The numbers of started transfers, and the ends that nobody has asked for yet."""

from splitserve.transfer.base import TransferEvent, TransferId


class Ends:
    """One per connector. Used by the engine's thread alone."""

    def __init__(self) -> None:
        self._last = 0
        self._events: list[TransferEvent] = []

    def begin(self) -> TransferId:
        """A number that no other transfer of the connector has."""
        self._last += 1
        return TransferId(self._last)

    def done(self, transfer: TransferId, nbytes: int) -> None:
        self._events.append(TransferEvent(transfer, "done", nbytes))

    def failed(self, transfer: TransferId, error: str) -> None:
        self._events.append(TransferEvent(transfer, "failed", 0, error))

    def not_sent(self, layer: int) -> TransferId:
        """A transfer with a peer that is not connected: begins and fails."""
        transfer = self.begin()
        self.failed(transfer, f"layer {layer} was not sent: the peer is not connected")
        return transfer

    def take(self) -> list[TransferEvent]:
        """Each end once, in the order in which they came."""
        events, self._events = self._events, []
        return events


class GonePeer:
    """The writer and the reader for a peer that is not connected: every transfer fails."""

    def __init__(self, ends: Ends) -> None:
        self._ends = ends

    def write(self, layer: int) -> TransferId:
        return self._ends.not_sent(layer)

    def read(self, layer: int) -> TransferId:
        return self._ends.not_sent(layer)
