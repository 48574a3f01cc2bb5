"""The environment of the engine's command-line program: built from an allow-list, not inherited.

Two kinds of variables matter. Some decide *where* untrusted code runs, ``DOCKER_HOST`` and
``DOCKER_CONTEXT`` before all; an explicit setting has to beat every one of them (hazard R7). Others
would end up *inside*: proxy variables often carry credentials, and both docker's own configuration
and podman's environment hand them to each container that is created (hazard F14).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from sandbox_exec._docker.interface import Argv

__all__ = ["PROXY_VARIABLES", "cli_environment", "without_proxies"]

PROXY_VARIABLES: Final = tuple(
    spelling
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")
    for spelling in (name, name.lower())
)
"""Every variable that docker's ``proxies`` setting adds to containers, in both spellings."""

# Which engine is spoken to, when the settings do not say.
_WHERE: Final = (
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "CONTAINER_HOST",
    "CONTAINER_CONNECTION",
)

# How it is spoken to, and what the program needs to run at all.
_HOW: Final = (
    "PATH",
    "HOME",
    "TMPDIR",
    # ssh:// hosts; credential helpers; podman's sockets and storage without root.
    "SSH_AUTH_SOCK",
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_CACHE_HOME",
    # The machine's certificates, where they are not in the usual place.
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "DOCKER_CONFIG",
    "DOCKER_CERT_PATH",
    "DOCKER_TLS",
    "DOCKER_TLS_VERIFY",
    "DOCKER_API_VERSION",
    "DOCKER_DEFAULT_PLATFORM",
    # Who may pull what: to leave these out would weaken or break what a deployment has set up.
    "DOCKER_AUTH_CONFIG",
    "DOCKER_CONTENT_TRUST",
    "DOCKER_CONTENT_TRUST_SERVER",
    "REGISTRY_AUTH_FILE",
    "CONTAINER_SSHKEY",
    "CONTAINERS_CONF",
    "CONTAINERS_CONF_OVERRIDE",
    "CONTAINERS_REGISTRIES_CONF",
    "CONTAINERS_STORAGE_CONF",
    "STORAGE_DRIVER",
    "STORAGE_OPTS",
)


def cli_environment(environ: Mapping[str, str], *, docker_host: str | None) -> dict[str, str]:
    """Return the whole environment for the engine's program.

    No proxy variable is in it: podman would copy it into containers, and ``--env NAME`` of
    :func:`without_proxies` would hand its value over. A daemon that is reached through a proxy, and
    a podman that pulls through one, have to be told so in the engine's own configuration.

    :param environ: this process's environment, usually ``os.environ``.
    :param docker_host: the engine to speak to, as ``DOCKER_HOST`` says it; no context or connection
        chosen elsewhere can then point away from it. podman is given it as ``CONTAINER_HOST``, so
        that it cannot quietly run on this host what was meant for another. ``None`` leaves the
        choice to ``environ``.

    Source: S0's ``env``, which was inherited; hazards F14 and R7.
    """
    names = _HOW if docker_host is not None else (*_HOW, *_WHERE)
    built = {name: environ[name] for name in names if name in environ}
    built.setdefault("PATH", os.defpath)
    # What ssh and the C library say is read by programs here, not by people.
    built["LC_ALL"] = "C"
    if docker_host is not None:
        built["DOCKER_HOST"] = built["CONTAINER_HOST"] = docker_host
    return built


def without_proxies() -> Argv:
    """Return the flags that keep proxy variables out of a container that is being created.

    The ``proxies`` section of docker's ``config.json`` sets them in every new container unless the
    command line already names them (hazards F14, R6). A name whose variable the program does not
    have sets nothing, and removes what the image sets: seen with the command lines 20.10 and 28.
    An ``exec`` inherits the container's variables and adds none. podman takes proxies from its own
    environment, where :func:`cli_environment` leaves them out; what somebody lists under ``env`` in
    its ``containers.conf`` stays.
    """
    return tuple(word for name in PROXY_VARIABLES for word in ("--env", name))
