"""The rig's command line: an engine for a command, for a shell, or each of them in turn."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from tests.rig import conformance, developer, dind, packages
from tests.rig.child import run_child
from tests.rig.engine import some_engine
from tests.rig.images import chosen, ensure_images
from tests.rig.processes import RigError

_NO_ENGINE = 3


def main(words: Sequence[str]) -> int:
    """Do what the command line says; the status is the command's, or 3 when there is no engine for
    it.
    """
    options = _parser().parse_args(words)
    signal.signal(signal.SIGTERM, _leave)
    packages.complete_path()
    try:
        return int(options.action(options))
    except RigError as error:
        print(f"rig: {error}", file=sys.stderr)
        return _NO_ENGINE
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _leave(number: int, frame: FrameType | None) -> None:
    """Turn SIGTERM into an exit that still stops what was started."""
    raise SystemExit(128 + number)


def _run(options: argparse.Namespace) -> int:
    with some_engine() as engine:
        ensure_images(
            chosen(options.images), environment=engine.environment, engine=(engine.command,)
        )
        return run_child(_command(options), engine.environment)


def _podman(options: argparse.Namespace) -> int:
    os.environ["SANDBOX_EXEC_ENGINE"] = "podman"
    return _run(options)


def _dind(options: argparse.Namespace) -> int:
    with some_engine() as engine:
        return dind.run_inside(_command(options), engine)


def _engines(options: argparse.Namespace) -> int:
    return conformance.run_lineup(options.only, _command(options))


def _images(options: argparse.Namespace) -> int:
    engine = os.environ.get("SANDBOX_EXEC_ENGINE") or "docker"
    ensure_images(chosen(options.names or ["all"]), environment=os.environ, engine=(engine,))
    return 0


def _up(options: argparse.Namespace) -> int:
    print(f"export DOCKER_HOST={developer.up().host}")
    return 0


def _down(options: argparse.Namespace) -> int:
    if not developer.down():
        print("rig: no daemon was up", file=sys.stderr)
    return 0


def _command(options: argparse.Namespace) -> list[str]:
    words: list[str] = options.command
    return words[1:] if words[:1] == ["--"] else words


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.rig", description=__doc__)
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    commands = (
        ("run", _run, "run a command with an engine that answers"),
        ("podman", _podman, "run a command with a podman that works here"),
        ("dind", _dind, "run a command in a container that has a newer docker of its own"),
    )
    for name, action, text in commands:
        command = actions.add_parser(name, help=text)
        command.set_defaults(action=action)
        if name != "dind":
            command.add_argument("--images", action="append", default=[], metavar="NAME,...|all")
        command.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD ARG...")
    engines = actions.add_parser("engines", help="run the conformance suite on each engine")
    engines.set_defaults(action=_engines)
    engines.add_argument("--only", action="append", default=[], metavar="ENGINE")
    engines.add_argument("command", nargs=argparse.REMAINDER, metavar="-- PYTEST-ARG...")
    up = actions.add_parser("up", help="start a daemon for this shell, and print how to reach it")
    up.set_defaults(action=_up)
    down = actions.add_parser("down", help="stop the daemon that up started")
    down.set_defaults(action=_down)
    loaded = actions.add_parser(
        "images", help="load test images into the engine of the environment"
    )
    loaded.set_defaults(action=_images)
    loaded.add_argument("names", nargs="*", metavar="NAME")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
