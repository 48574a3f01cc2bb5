"""The image that sandboxes are made from: fetched when it is missing, known by its identity."""

from __future__ import annotations

from attrs import define, field

from sandbox_exec._config import SandboxConfig
from sandbox_exec._docker import argv as command_line
from sandbox_exec._docker.client import EngineClient
from sandbox_exec._docker.inventory import ContainerFacts, ImageFacts, Inventory
from sandbox_exec._errors import ContainerStartError
from sandbox_exec._log import Log
from sandbox_exec._policy import Policy, Preset, make_policy
from sandbox_exec._start_error import start_error_from
from sandbox_exec._tool_text import START_HINT

__all__ = ["ImageSource"]

log = Log(__name__)


@define
class ImageSource:
    """The image of one preset, and the policies that follow from what it turns out to be."""

    _config: SandboxConfig
    _client: EngineClient
    _preset: Preset
    _policies: dict[str, Policy] = field(factory=dict)

    async def ensure(self) -> ImageFacts:
        """Return the image, fetching it if the engine does not have it.

        A step of its own with a budget of its own (hazards C3, R6).

        :raises ContainerStartError: with code ``image-missing`` when it cannot be had, and
            ``bad-image`` when none can have that name.
        """
        name = self._config.image
        image = await self._client.inspect_image(name)
        if image is None:
            await self._pull()
            image = await self._client.inspect_image(name)
        if image is None:
            raise ContainerStartError(
                f"there is no image {name!r}", code="image-missing", hint=START_HINT
            )
        return image

    async def policy(self, inventory: Inventory, container: ContainerFacts | None) -> Policy:
        """Return today's policy, which includes the image's identity (hazard S8)."""
        if inventory.images:
            identity = inventory.images[0].id
        elif container is not None:
            # Nothing says that the image changed; a container that runs is no reason to fetch it.
            identity = container.image_id
        else:
            identity = (await self.ensure()).id
        if identity not in self._policies:
            self._policies[identity] = make_policy(self._preset, identity)
        return self._policies[identity]

    async def _pull(self) -> None:
        name = self._config.image
        argv = command_line.pull(name)
        log.info("sandbox.pulling", image=name)
        answer = await self._client.control(argv, timeout=self._config.pull_timeout)
        if answer.exit_code != 0:
            error = start_error_from(
                f"the image {name!r} could not be fetched", self._client.line(argv), answer
            )
            raise error if error.code == "bad-image" else error.fresh(code="image-missing")
        log.info("sandbox.pulled", image=name)
