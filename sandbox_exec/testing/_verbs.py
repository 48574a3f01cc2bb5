"""What the fake engine does with a control command, and the words it does it with.

Words and exit statuses are those of docker 28.2.2 with an engine 20.10.24;
tests/engine/test_seam.py holds both to the same script.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Final, cast

from sandbox_exec._docker.interface import Completed
from sandbox_exec.testing._commands import Command, Create
from sandbox_exec.testing._containers import FakeContainer, FakeImage, Json
from sandbox_exec.testing._store import DAEMON, Refused, Store, with_tag
from sandbox_exec.testing._tidying import tidy

__all__ = ["failure", "perform"]

_RUN_HELP: Final = "\n\nRun 'docker run --help' for more information"
_NOTHING: Final = ("sh", "-c", ":")
_DEPRECATED: Final = "Flag --time has been deprecated, use --timeout instead\n"


def perform(store: Store, command: Command) -> Completed:
    """Do what a control command asks for."""
    try:
        return _VERBS[command.verb](store, command)
    except Refused as refused:
        return failure(command, str(refused))


def failure(command: Command, text: str) -> Completed:
    """Return how ``command`` ends when the engine says ``text``."""
    if isinstance(command, Create):
        return Completed(125, b"", f"docker: {text}{_RUN_HELP}\n".encode())
    stdout = b"[]\n" if command.verb in {"inspect", "image inspect"} else b""
    if command.verb == "info":
        stdout = b'{"ID":"","Containers":0,"DockerRootDir":"","ServerErrors":["' + b'"]}\n'
    if command.verb == "version":
        stdout = _dump({"Client": _CLIENT, "Server": None})
    after = (
        f"Error: failed to start containers: {command.names[0]}\n"
        if command.verb == "start"
        else ""
    )
    return Completed(1, stdout, f"{text}\n{after}".encode())


def _dump(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _inspect(store: Store, command: Command) -> Completed:
    found: list[Json] = []
    missing = ""
    for name in command.names:
        container, image = store.container(name), store.image(name)
        if container is not None:
            found.append(container.inspect())
        elif image is not None:
            found.append(_inspect_image(store, image))
        else:
            missing += f"Error: No such object: {name}\n"
    return Completed(1 if missing else 0, _dump(found), missing.encode())


def _inspect_image(store: Store, image: FakeImage) -> Json:
    return image.inspect(tagged=store.tags.get(image.name) == image.id)


def _image_inspect(store: Store, command: Command) -> Completed:
    (name,) = command.names
    image = store.image(name)
    if image is None:
        raise Refused(f"{DAEMON}no such image: {name}: No such image: {with_tag(name)}")
    return Completed(0, _dump([_inspect_image(store, image)]))


_CLIENT: Final = {
    "Version": "28.2.2",
    "ApiVersion": "1.41",
    "DefaultAPIVersion": "1.50",
    "Os": "linux",
    "Arch": "amd64",
    "Context": "default",
}


def _version(_store: Store, _command: Command) -> Completed:
    engine = {"Name": "Engine", "Version": "20.10.24", "Details": {"ApiVersion": "1.41"}}
    server = {
        "Platform": {"Name": ""},
        "Components": [engine],
        "Version": "20.10.24",
        "ApiVersion": "1.41",
        "Os": "linux",
        "Arch": "amd64",
    }
    return Completed(0, _dump({"Client": _CLIENT, "Server": server}))


def _context(store: Store, _command: Command) -> Completed:
    endpoint = {"Host": store.host, "SkipTLSVerify": False}
    facts = {"Name": "default", "Metadata": {}, "Endpoints": {"docker": endpoint}}
    return Completed(0, _dump({**facts, "TLSMaterial": {}, "Storage": {}}))


def _info(store: Store, _command: Command) -> Completed:
    states = [one.state for one in store.containers.values()]
    facts = {
        "ID": "FAKE:FAKE",
        "Containers": len(states),
        "ContainersRunning": states.count("running"),
        "ContainersPaused": states.count("paused"),
        "Images": len(store.images),
        "Driver": "overlay2",
        "DriverStatus": [
            ["Backing Filesystem", "xfs" if store.quotas else "extfs"],
            ["Supports d_type", "true"],
        ],
        "MemoryLimit": "memory" not in store.ignored,
        "SwapLimit": "swap" not in store.ignored,
        "CpuCfsPeriod": "cpus" not in store.ignored,
        "CpuCfsQuota": "cpus" not in store.ignored,
        "PidsLimit": "pids" not in store.ignored,
        "CgroupDriver": "cgroupfs",
        "SystemTime": store.clock.stamp(),
        "CgroupVersion": "1",
        "OSType": "linux",
        "Architecture": "x86_64",
        "DockerRootDir": store.data_root,
        "ServerVersion": "20.10.24",
        "Runtimes": {"io.containerd.runc.v2": {"path": "runc"}, "runc": {"path": "runc"}},
        "DefaultRuntime": "runc",
        "SecurityOptions": ["name=seccomp,profile=default"],
        "Warnings": None,
        "ClientInfo": {"Version": "28.2.2", "Context": "default"},
    }
    return Completed(0, _dump(facts))


def _pull(store: Store, command: Command) -> Completed:
    (name,) = command.names
    if with_tag(name) not in {with_tag(known) for known in store.registry}:
        raise Refused(
            f"{DAEMON}pull access denied for {name}, repository does not exist or may require "
            "'docker login': denied: requested access to the resource is denied"
        )
    if store.image(name) is None:
        store.add_image(name)
    return Completed(0, f"{with_tag(name)}\n".encode())


def _run(store: Store, command: Command) -> Completed:
    create = cast("Create", command)
    container = store.create(create)
    container.start()
    if create.kind == "tool":
        store.discard(container)
        return Completed(0) if create.command == _NOTHING else tidy(store, container)
    return Completed(0, f"{container.id}\n".encode())


def _start(store: Store, command: Command) -> Completed:
    container = store.existing(command.names[0])
    if container.state == "paused":
        raise Refused(f"{DAEMON}cannot start a paused container, try unpause instead")
    if container.state in {"removing", "dead"}:
        raise Refused(f"{DAEMON}container is marked for removal and cannot be started")
    if not container.running:
        container.start()
    return Completed(0, f"{command.names[0]}\n".encode())


def _restart(store: Store, command: Command) -> Completed:
    container = store.container(command.names[0])
    if container is None:
        return Completed(
            1, _DEPRECATED.encode(), f"{DAEMON}No such container: {command.names[0]}\n".encode()
        )
    if container.running:
        container.stop()
    container.start()
    return Completed(0, f"{_DEPRECATED}{command.names[0]}\n".encode())


def _stop(store: Store, command: Command) -> Completed:
    def stop(container: FakeContainer) -> None:
        if container.running:
            container.stop()

    return _each(store, command, stop, before=_DEPRECATED)


def _remove(store: Store, command: Command) -> Completed:
    def remove(container: FakeContainer) -> None:
        if container.state == "removing":
            raise Refused(f"{DAEMON}removal of container {container.name} is already in progress")
        if container.running and not command.force:
            raise Refused(DAEMON + _cannot_remove(container))
        store.discard(container)

    return _each(store, command, remove, missing_is_fine=command.force)


def _each(
    store: Store,
    command: Command,
    act: Callable[[FakeContainer], None],
    *,
    before: str = "",
    missing_is_fine: bool = False,
) -> Completed:
    stdout, stderr, failed = before, "", False
    for name in command.names:
        try:
            act(store.existing(name))
            stdout += f"{name}\n"
        except Refused as refused:
            stderr += f"{refused}\n"
            failed = failed or not (missing_is_fine and store.container(name) is None)
    return Completed(1 if failed else 0, stdout.encode(), stderr.encode())


def _unpause(store: Store, command: Command) -> Completed:
    container = store.existing(command.names[0])
    if container.state != "paused":
        raise Refused(f"{DAEMON}Container {container.id} is not paused")
    container.state = "running"
    return Completed(0, f"{command.names[0]}\n".encode())


def _top(store: Store, command: Command) -> Completed:
    container = store.existing(command.names[0])
    store.must_run(container)
    processes = 1 + len(container.inhabitants) + len(container.background)
    return Completed(0, b"PID\n" + b"".join(b"%d\n" % (4000 + n) for n in range(processes)))


def _list(store: Store, command: Command) -> Completed:
    wanted = [text.partition("=")[::2] for text in command.names]
    shown = [
        one.listing()
        for one in reversed(store.containers.values())
        if all(_matches(one, kind, value) for kind, value in wanted)
    ]
    return Completed(0, b"".join(map(_dump, shown)))


def _cannot_remove(container: FakeContainer) -> str:
    if container.state == "paused":
        return (
            f"You cannot remove a paused container {container.id}. Unpause and then stop the "
            "container before attempting removal or force remove"
        )
    return (
        f"You cannot remove a {container.state} container {container.id}. Stop the container "
        "before attempting removal or force remove"
    )


def _matches(container: FakeContainer, kind: str, value: str) -> bool:
    match kind:
        case "label":
            name, equals, text = value.partition("=")
            labels = {**container.image.labels, **container.labels}
            return name in labels and (not equals or labels[name] == text)
        case "name":
            return re.search(value.removeprefix("/"), container.name) is not None
        case "status":
            return container.state == value
        case _:
            return container.id.startswith(value)


_VERBS: Final[Mapping[str, Callable[[Store, Command], Completed]]] = {
    "context inspect": _context,
    "image inspect": _image_inspect,
    "info": _info,
    "inspect": _inspect,
    "ps": _list,
    "pull": _pull,
    "restart": _restart,
    "rm": _remove,
    "run": _run,
    "run --rm": _run,
    "start": _start,
    "stop": _stop,
    "top": _top,
    "unpause": _unpause,
    "version": _version,
}
