"""The test images, imported into an engine from the cached tarballs; no registry is asked for
anything.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.rig import places, rootfs
from tests.rig.processes import RigError

_LABEL = "sandbox-exec.rig.recipe"
_REPOSITORY = "sandbox-exec"


@dataclass(frozen=True)
class Image:
    """A root file system and the settings that it is imported with."""

    base: rootfs.Rootfs
    changes: tuple[str, ...] = ()

    @property
    def recipe(self) -> str:
        """What the label holds: an image with another label is an old one, and is made anew."""
        return hashlib.sha256("\0".join((self.base.key, *self.changes)).encode()).hexdigest()[:16]


_PRINTS_AND_FAILS = (
    """ENTRYPOINT ["/bin/sh", "-c", "echo entrypoint \\"$@\\"; exit 1", "entrypoint"]"""
)

IMAGES: Mapping[str, Image] = {
    "busybox": Image(rootfs.BUSYBOX, ('CMD ["/bin/sh"]',)),
    "debian": Image(rootfs.DEBIAN, ('CMD ["/bin/bash"]',)),
    "busybox-entrypoint": Image(rootfs.BUSYBOX, (_PRINTS_AND_FAILS,)),
    "busybox-user": Image(rootfs.BUSYBOX, ('CMD ["/bin/sh"]', "USER app")),
    "busybox-bare": Image(rootfs.BUSYBOX_BARE, ('CMD ["/bin/sh"]',)),
    "minimal": Image(rootfs.MINIMAL, ('CMD ["/bin/sh"]',)),
}


def tag(name: str) -> str:
    """Return the reference that tests use for the image of this short name."""
    return f"{_REPOSITORY}/{name}"


def chosen(words: Iterable[str]) -> list[str]:
    """Read a list of image names as the command line takes it: separated by commas, or ``all``."""
    names = [name for word in words for name in word.split(",") if name]
    if "all" in names:
        return list(IMAGES)
    for name in names:
        if name not in IMAGES:
            raise RigError(f"no image is called {name!r}; there are: all, {', '.join(IMAGES)}")
    return list(dict.fromkeys(names))


def ensure_images(
    names: Iterable[str], *, environment: Mapping[str, str], engine: Sequence[str] = ("docker",)
) -> None:
    """Make sure the engine that the argv prefix and environment lead to has these images, as their
    recipes now are.
    """
    for name in names:
        image = IMAGES[name]
        if not is_current(tag(name), image, environment=environment, engine=engine):
            import_tarball(image, tag(name), environment=environment, engine=engine)


def import_tarball(
    image: Image,
    reference: str,
    *,
    environment: Mapping[str, str],
    engine: Sequence[str] = ("docker",),
) -> None:
    """Import one image under this name, labelled with its recipe."""
    tarball = image.base.build()
    changes = [*image.changes, f"LABEL {_LABEL}={image.recipe}"]
    options = [word for change in changes for word in ("--change", change)]
    # From stdin, as the daemon may be one that does not see this machine's files.
    with places.locked("import"), tarball.open("rb") as stream:
        done = subprocess.run(
            [*engine, "import", *options, "-", reference],
            stdin=stream,
            capture_output=True,
            env=dict(environment),
            check=False,
        )
    if done.returncode:
        # The last line has the reason; what stands before it would make one line into many.
        words = done.stderr.decode(errors="replace").strip().splitlines() or ["it does not say why"]
        raise RigError(f"{engine[0]} cannot import {reference}: {words[-1]}{_advice(engine[0])}")


def _advice(program: str) -> str:
    """Return what to do about an import that failed, where that is known."""
    if "podman" not in program or os.geteuid() == 0:
        return ""
    return (
        "; podman without root needs ranges for this user in /etc/subuid and /etc/subgid, and "
        "newuidmap (Debian: uidmap): add them and run `podman system migrate`, or run this as root"
    )


def is_current(
    reference: str,
    image: Image,
    *,
    environment: Mapping[str, str],
    engine: Sequence[str] = ("docker",),
) -> bool:
    """Tell whether the engine has this image as its recipe now is."""
    template = f'{{{{index .Config.Labels "{_LABEL}"}}}}'
    done = subprocess.run(
        [*engine, "image", "inspect", "--format", template, reference],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=dict(environment),
        check=False,
    )
    return done.returncode == 0 and done.stdout.decode().strip() == image.recipe
