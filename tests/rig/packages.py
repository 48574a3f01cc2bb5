"""Debian packages: installed where a command is missing, or fetched and unpacked without installing
them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.rig import places
from tests.rig.processes import RigError

_APT = ("apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3")
_ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive"}
_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def can_install() -> bool:
    """Tell whether packages can be installed here: as root, on Debian or a relative of it."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def complete_path() -> None:
    """Put the administrator's directories on PATH: dockerd, iptables and debootstrap live there."""
    present = os.environ.get("PATH", os.defpath).split(":")
    os.environ["PATH"] = ":".join([*present, *(name for name in _SBIN if name not in present)])


def require(commands: Mapping[str, str]) -> None:
    """Make sure that each command (or file) is there; its value is the package that brings it."""
    complete_path()
    if not _absent(commands):
        return
    with places.locked("apt"):
        missing = _absent(commands)
        if not missing:
            return
        if not can_install():
            raise RigError(
                f"{', '.join(missing)} not found, and only root on Debian can install it"
            )
        _apt("install", "-y", "--no-install-recommends", *sorted(missing.values()))
    still = _absent(commands)
    if still:
        raise RigError(f"the packages {', '.join(still.values())} did not bring {', '.join(still)}")


def unpack(package: str, directory: Path) -> None:
    """Fetch a package and unpack it into a directory; the machine itself stays as it is."""
    fetched = directory.parent / f"{directory.name}.debs"
    fetched.mkdir(parents=True)
    with places.locked("apt"):
        _apt("-o", "APT::Sandbox::User=root", "download", package, cwd=fetched)
    for archive in fetched.glob("*.deb"):
        _run(["dpkg-deb", "--extract", str(archive), str(directory)])
    shutil.rmtree(fetched)


def debian_mirror() -> str:
    """Return the mirror that this machine installs from: the rig names no host of its own."""
    explicit = os.environ.get("SANDBOX_EXEC_RIG_MIRROR")
    if explicit:
        return explicit
    apt = Path("/etc/apt")
    files = [apt / "sources.list", *sorted(apt.glob("sources.list.d/*"))]
    for file in files:
        if file.suffix in {".list", ".sources"} and file.is_file():
            text = file.read_text(errors="replace")
            for uri in mirrors(text, deb822=file.suffix == ".sources"):
                return uri
    raise RigError("no Debian mirror in apt's sources; name one in SANDBOX_EXEC_RIG_MIRROR")


def mirrors(text: str, *, deb822: bool) -> Iterator[str]:
    """Yield the mirrors with Debian's main archive that one file of apt sources names."""
    entries = _stanzas(text) if deb822 else _lines(text)
    for types, uris, suites, components in entries:
        plain = any(re.fullmatch(r"[a-z]+", suite) for suite in suites)
        if "deb" in types and "main" in components and plain:
            for uri in uris:
                if re.search(r"/debian/?$", uri):
                    yield uri


_Entry = tuple[list[str], list[str], list[str], list[str]]


def _stanzas(text: str) -> Iterator[_Entry]:
    kept = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for stanza in re.split(r"\n\s*\n", kept):
        fields: dict[str, list[str]] = {}
        name = ""
        for line in stanza.splitlines():
            if line[:1].isspace():
                fields.setdefault(name, []).extend(line.split())
            elif ":" in line:
                name, _, value = line.partition(":")
                name = name.lower()
                fields[name] = value.split()
        if fields.get("enabled", ["yes"]) != ["no"]:
            keys = ("types", "uris", "suites", "components")
            types, uris, suites, components = (fields.get(key, []) for key in keys)
            yield types, uris, suites, components


def _lines(text: str) -> Iterator[_Entry]:
    for line in text.splitlines():
        words = re.sub(r"\[[^]]*\]", "", line.partition("#")[0]).split()
        if len(words) > 3:
            yield [words[0]], [words[1]], [words[2]], words[3:]


def _absent(commands: Mapping[str, str]) -> dict[str, str]:
    """Keep the commands (or, where a path is given, the files) that are not there."""
    return {
        name: package
        for name, package in commands.items()
        if not (Path(name).exists() if "/" in name else shutil.which(name))
    }


def _apt(*words: str, cwd: Path | None = None) -> None:
    """Run apt-get; where it fails once more with fresh lists, as they may be old or absent."""
    try:
        _run([*_APT, *words], cwd=cwd)
    except RigError:
        if os.geteuid() != 0:
            raise
        _run([*_APT, "update"])
        _run([*_APT, *words], cwd=cwd)


def _run(argv: Iterable[str], cwd: Path | None = None) -> None:
    words = list(argv)
    done = subprocess.run(
        words,
        cwd=cwd,
        env=os.environ | _ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode:
        tail = done.stdout.decode(errors="replace").splitlines()[-8:]
        raise RigError(f"{' '.join(words)} failed ({done.returncode}):\n" + "\n".join(tail))
