"""Body: what every JSON object of a request has in common."""

from pydantic import BaseModel, ConfigDict


class Body(BaseModel):
    """Unknown fields are ignored as vLLM does; known ones must have the right JSON type."""

    model_config = ConfigDict(
        extra="ignore",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
        protected_namespaces=(),
    )
