"""The engine rig: real container engines for the tests, on a machine that has none.

``python -m tests.rig run --images all -- pytest`` gives the command an engine that answers and
stops afterwards exactly what it started. A docker that can be reached is used as it is; where there
is none, a private ``dockerd`` is started with everything of its own (socket, data, containerd,
network namespace, cgroups), so that it disturbs no other daemon and several of them run side by
side. Images are made from Debian packages, without a registry.

The package is synchronous and needs only the standard library: it runs before the virtual
environment exists.
"""
