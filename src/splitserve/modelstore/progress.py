"""Progress of slow work, told to whoever shows it."""

from typing import Protocol


class Progress(Protocol):
    """One stage at a time: a new stage ends the one before."""

    def stage(self, name: str, total_bytes: int | None) -> None:
        """Work called ``name`` begins; ``total_bytes`` None when its length is not known."""
        ...

    def advance(self, nbytes: int) -> None:
        """``nbytes`` more of the stage are done."""
        ...

    def done(self) -> None:
        """The last stage ended well. Not called when the work failed."""
        ...


class Silent:
    """Shows nothing."""

    def stage(self, name: str, total_bytes: int | None) -> None:
        """Nothing is shown."""

    def advance(self, nbytes: int) -> None:
        """Nothing is shown."""

    def done(self) -> None:
        """Nothing is shown."""
