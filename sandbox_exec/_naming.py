"""Session id to key to container name and workspace path, and the labels we put on containers.

Keys are injective (hazard S1): a readable prefix for people, a digest of the whole id for safety.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Final, Literal

__all__ = [
    "LABEL_DEPLOYMENT",
    "LABEL_FORMAT",
    "LABEL_KEY",
    "LABEL_KIND",
    "LABEL_POLICY",
    "LABEL_POLICY_PARTS",
    "LABEL_PROTOCOL",
    "Kind",
    "container_name",
    "is_deployment",
    "is_key",
    "one_off_name",
    "session_key",
    "workspace_path",
]

Kind = Literal["session", "spawn", "one-off", "reaper"]

LABEL_FORMAT: Final = "sandbox-exec.format"
LABEL_DEPLOYMENT: Final = "sandbox-exec.deployment"
LABEL_KIND: Final = "sandbox-exec.kind"
LABEL_KEY: Final = "sandbox-exec.key"
LABEL_POLICY: Final = "sandbox-exec.policy"
LABEL_POLICY_PARTS: Final = "sandbox-exec.policy-parts"
LABEL_PROTOCOL: Final = "sandbox-exec.protocol"

_PREFIX_LENGTH: Final = 24
_DIGEST_LENGTH: Final = 24
_UNREADABLE = re.compile(r"[^a-z0-9]+")
_KEY = re.compile(rf"(?:[a-z0-9]+(?:-[a-z0-9]+)*-)?[0-9a-f]{{{_DIGEST_LENGTH}}}\Z")
_DEPLOYMENT = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}\Z")


def session_key(session: str) -> str:
    """Return the file-system-safe form of a session id; different ids never share one.

    Lower case only, so that a case-insensitive workspace disk cannot merge two of them.

    :raises ValueError: for an empty id, and for one that is no ``str``.

    Source: S0's ``sessionKey``, which merged ids; hazard S1.
    """
    given: object = session
    if not isinstance(given, str) or not given:
        raise ValueError(f"session must be a non-empty str, not {session!r}")
    # surrogatepass: an id is an opaque name, so even one that is no valid text has a key.
    digest = hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_LENGTH]
    prefix = _UNREADABLE.sub("-", session.lower())[:_PREFIX_LENGTH].strip("-")
    return f"{prefix}-{digest}" if prefix else digest


def is_key(text: str) -> bool:
    """Return whether ``text`` has exactly the form of a key; nothing else is ever reaped."""
    return _KEY.match(text) is not None


def is_deployment(text: str) -> bool:
    """Return whether ``text`` can name a deployment: lower case, digits, ``_`` and ``-``."""
    return _DEPLOYMENT.match(text) is not None


def container_name(deployment: str, key: str, kind: Kind = "session") -> str:
    """Return the name of the container of a session, or of a spawn backend.

    The dots cannot occur in any part, so that no two containers meet in one name.
    """
    return f"sbx.{deployment}.{key}" if kind == "session" else f"sbx.{deployment}.{kind}.{key}"


def one_off_name(deployment: str) -> str:
    """Return a new name for a one-off container; no key starts with ``once.``."""
    return f"sbx.{deployment}.once.{secrets.token_hex(8)}"


def workspace_path(root: str, key: str) -> str:
    """Return the session's directory on the daemon's host: always a direct child of ``root``.

    :raises ValueError: if ``key`` is not exactly a key.
    """
    if not is_key(key):
        message = f"{key!r} is not a session key"
        raise ValueError(message)
    return f"{root.rstrip('/')}/{key}"
