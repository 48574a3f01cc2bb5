"""The rig's pure parts: apt's sources, recipe keys, image names, process identities."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.rig import dind, images, packages
from tests.rig.processes import ProcessId, RigError
from tests.rig.rootfs import Rootfs

DEB822 = """\
Types: deb
# a comment inside of a stanza
URIs: http://mirror.invalid/debian
Suites: bookworm bookworm-updates
Components: main

Enabled: no
Types: deb
URIs: http://disabled.invalid/debian
Suites: bookworm
Components: main

Types: deb
URIs: http://mirror.invalid/debian-security
Suites: bookworm-security
Components: main
"""

ONE_LINE = """\
# deb http://commented.invalid/debian bookworm main
deb [arch=amd64 signed-by=/x.gpg] http://mirror.invalid/debian/ bookworm main contrib
deb-src http://source.invalid/debian bookworm main
deb http://security.invalid/debian-security bookworm-security main
deb https://vendor.invalid/apt stable main
"""


@pytest.mark.parametrize(
    ("text", "deb822", "expected"),
    [
        (DEB822, True, ["http://mirror.invalid/debian"]),
        (ONE_LINE, False, ["http://mirror.invalid/debian/"]),
        ("", True, []),
        ("", False, []),
        ("Types: deb\nURIs:\n http://a.invalid/debian\nSuites: sid\nComponents: main\n", True,
         ["http://a.invalid/debian"]),
    ],
)  # fmt: skip
def test_the_mirror_is_the_one_that_the_machine_installs_from(
    text: str, deb822: bool, expected: list[str]
) -> None:
    """Only enabled binary sources of Debian's main archive count."""
    assert list(packages.mirrors(text, deb822=deb822)) == expected


def _one(root: Path) -> None:
    (root / "a").touch()


def _other(root: Path) -> None:
    (root / "b").touch()


def test_a_key_changes_with_everything_in_the_recipe_and_with_nothing_else() -> None:
    """A cached tarball is used exactly as long as it is what the recipe makes."""
    recipe = Rootfs("x", _one, ("package",))
    assert recipe.key == Rootfs("x", _one, ("package",)).key
    others = {
        replace(recipe, name="y").key,
        replace(recipe, fill=_other).key,
        replace(recipe, depends=("package", "another")).key,
    }
    assert len(others | {recipe.key}) == 4


def test_images_are_chosen_by_name() -> None:
    """Names come separated by commas, each counts once, and ``all`` means all."""
    assert images.chosen(["busybox,debian", "busybox"]) == ["busybox", "debian"]
    assert images.chosen(["busybox,all"]) == list(images.IMAGES)
    assert images.chosen([]) == []
    with pytest.raises(RigError, match="no image is called 'nix'"):
        images.chosen(["nix"])


@pytest.mark.parametrize(("user", "advised"), [(0, False), (1000, True)])
def test_an_import_that_fails_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int, advised: bool
) -> None:
    """With the reason, and for a podman without root with what to do about it."""
    podman = tmp_path / "podman"
    podman.write_text("#!/bin/sh\necho 'Error: many' >&2\necho 'no subuid ranges' >&2\nexit 125\n")
    podman.chmod(0o755)
    tarball = tmp_path / "x.tar"
    tarball.touch()
    monkeypatch.setattr(Rootfs, "build", lambda _self: tarball)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    image = images.Image(Rootfs("x", _one))
    with pytest.raises(RigError) as caught:
        images.import_tarball(image, "a/b", environment=os.environ, engine=[str(podman)])
    text = str(caught.value)
    assert text.startswith(f"{podman} cannot import a/b: no subuid ranges")
    assert "\n" not in text
    assert ("run this as root" in text) == advised


def test_each_image_has_a_recipe_of_its_own() -> None:
    """Images that share a root file system still differ by their settings."""
    assert len({image.recipe for image in images.IMAGES.values()}) == len(images.IMAGES)


def test_a_process_is_known_by_its_start_too() -> None:
    """A pid that was used again is another process, and is never signalled as the first."""
    me = ProcessId.of(os.getpid())
    assert me is not None
    assert me.alive()
    assert ProcessId.parse(str(me)) == me
    assert not replace(me, start_time=me.start_time - 1).alive()
    assert ProcessId.parse("None") is None


def test_a_zombie_is_not_alive() -> None:
    """Who waits for the end of a process must not wait for its parent to notice."""
    with subprocess.Popen(["sleep", "60"]) as child:
        identity = ProcessId.of(child.pid)
        assert identity is not None
        identity.kill()
        assert not identity.alive()


def test_the_working_tree_is_copied_without_what_tools_left(tmp_path: Path) -> None:
    """Neither git's data nor an environment nor caches go into the nested container."""
    for name in (
        "a.py",
        "b/c.sh",
        ".ci/run",
        ".git/HEAD",
        ".venv/bin/python",
        "b/__pycache__/c.pyc",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = [str(path.relative_to(tmp_path)) for path in dind.working_tree(tmp_path)]
    assert sorted(found) == [".ci/run", "a.py", "b/c.sh"]
