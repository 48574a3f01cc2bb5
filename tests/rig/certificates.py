"""Throw-away certificates for a daemon that listens on TCP: an authority, a server, a client."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.rig import packages
from tests.rig.processes import RigError

_DAYS = "2"


def make_certificates(directory: Path) -> None:
    """Write them under the names that docker's program looks for, the daemon's as ``server-*``."""
    packages.require({"openssl": "openssl"})
    directory.mkdir(mode=0o700)
    _openssl(directory, "req", "-x509", *_new("ca-key.pem", "authority"), "-out", "ca.pem")
    server = ("subjectAltName=IP:127.0.0.1", "extendedKeyUsage=serverAuth")
    _signed(directory, "server-key.pem", "server-cert.pem", "daemon", server)
    _signed(directory, "key.pem", "cert.pem", "client", ("extendedKeyUsage=clientAuth",))


def _new(key: str, name: str) -> tuple[str, ...]:
    return (
        *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-keyout", key, "-subj", f"/CN=sandbox-exec {name}", "-days", _DAYS),
    )


def _signed(directory: Path, key: str, cert: str, name: str, extensions: tuple[str, ...]) -> None:
    (directory / "extensions").write_text("\n".join(extensions))
    _openssl(directory, "req", *_new(key, name), "-out", "request.pem")
    _openssl(
        directory,
        *("x509", "-req", "-in", "request.pem", "-CA", "ca.pem", "-CAkey", "ca-key.pem"),
        *("-CAcreateserial", "-days", _DAYS, "-extfile", "extensions", "-out", cert),
    )


def _openssl(directory: Path, *words: str) -> None:
    argv = ["openssl", *words]
    done = subprocess.run(argv, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RigError(f"openssl {words[0]} failed: {done.stderr.strip()}")
