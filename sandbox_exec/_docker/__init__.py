"""The docker and podman command lines, without any idea of a sandbox."""
