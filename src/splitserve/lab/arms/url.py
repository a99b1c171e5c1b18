"""An arm that runs already and goes on running: the lab attaches to it."""

from collections.abc import Mapping
from pathlib import Path

from splitserve.errors import ConfigError
from splitserve.lab.arms.asking import live_config, not_serving, read_metrics, reset_prefix_cache
from splitserve.lab.arms.base import Described, Endpoint
from splitserve.lab.plan.arms import PlannedArm
from splitserve.lab.plan.config_diff import Config


class UrlArm:
    """Implements ``base.Arm``. ``key_file`` holds the key that it asks for."""

    def __init__(self, planned: PlannedArm, key_file: Path | None, reset_cache: bool) -> None:
        assert planned.arm.url is not None
        url = planned.arm.url.rstrip("/").removesuffix("/v1")
        self.label = planned.label
        self.endpoint = Endpoint(
            url, planned.arm.served_as or planned.model.name, _authorization(key_file)
        )
        self._planned = planned.config
        self._reset_cache = reset_cache

    async def start(self) -> None:
        """Attaches. Raises UnavailableError when nobody answers there."""
        await live_config(self.endpoint)

    async def describe(self) -> Described:
        live = await live_config(self.endpoint)
        return Described(merged(self.label, self._planned, live), live, self.endpoint.url)

    async def metrics(self) -> dict[str, float]:
        return await read_metrics(self.endpoint)

    async def alive(self) -> str | None:
        return await not_serving(self.endpoint)

    async def reset(self) -> None:
        if self._reset_cache:
            await reset_prefix_cache(self.endpoint)

    async def stop(self) -> None:
        """It is not ours to stop."""


def merged(label: str, planned: Config, live: Config) -> Config:
    """Both; ConfigError where a server says otherwise than the plan."""
    for key, value in live.items():
        said = planned.get(key)
        if said is not None and said != value:
            raise ConfigError(f"arm {label}: {key} is {value!r}, and the plan says {said!r}")
    return {**planned, **live}


def _authorization(key_file: Path | None) -> Mapping[str, str]:
    if key_file is None:
        return {}
    try:
        key = key_file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"api_key_file: {key_file} cannot be read as a key: {error}") from error
    return {"Authorization": f"Bearer {key}"}
