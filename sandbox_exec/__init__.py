"""Run commands written by language models in docker containers, where they can do no harm."""

from __future__ import annotations

from sandbox_exec._config import SandboxConfig
from sandbox_exec._detect import detect_engine
from sandbox_exec._docker.facts import EngineFacts, EngineFamily, EngineInfo, EngineLimits
from sandbox_exec._docker.interface import (
    Argv,
    CliProcess,
    CommandRunner,
    Completed,
    NoAnswer,
    ProgramMissing,
)
from sandbox_exec._errors import (
    CommandFailedError,
    ContainerStartError,
    DaemonUnavailableError,
    EngineNotFoundError,
    ExecutorBusyError,
    ExecutorClosedError,
    FileTransferError,
    SandboxBrokenError,
    SandboxDisposedError,
    SandboxError,
)
from sandbox_exec._executor import LocalDockerExecutor, create_executor, get_executor
from sandbox_exec._models import (
    MAX_COMMAND_BYTES,
    MAX_STDIN_BYTES,
    ExecResult,
    ExecSpec,
    Gap,
    SandboxInfo,
    StreamName,
)
from sandbox_exec._protocol import Executor
from sandbox_exec._read_result import (
    BinaryFile,
    DeniedPath,
    DirectoryPath,
    HarvestedFile,
    MissingPath,
    ReadResult,
    SpecialPath,
    TextFile,
    TooLargeFile,
)
from sandbox_exec._reapers.dormant_cap import over_dormant_cap
from sandbox_exec._spawn.create import create_backend
from sandbox_exec._spawn.docker import DockerBackend
from sandbox_exec._spawn.local import LocalBackend
from sandbox_exec._spawn.options import DockerBackendOptions
from sandbox_exec._spawn.protocol import SandboxBackend
from sandbox_exec._spawn.values import (
    Mode,
    SandboxEnvHint,
    SpawnOptions,
    SpawnRequest,
    WrappedSpawn,
)
from sandbox_exec._tool_text import describe_sandbox, format_exec_result

__all__ = [
    "MAX_COMMAND_BYTES",
    "MAX_STDIN_BYTES",
    "Argv",
    "BinaryFile",
    "CliProcess",
    "CommandFailedError",
    "CommandRunner",
    "Completed",
    "ContainerStartError",
    "DaemonUnavailableError",
    "DeniedPath",
    "DirectoryPath",
    "DockerBackend",
    "DockerBackendOptions",
    "EngineFacts",
    "EngineFamily",
    "EngineInfo",
    "EngineLimits",
    "EngineNotFoundError",
    "ExecResult",
    "ExecSpec",
    "Executor",
    "ExecutorBusyError",
    "ExecutorClosedError",
    "FileTransferError",
    "Gap",
    "HarvestedFile",
    "LocalBackend",
    "LocalDockerExecutor",
    "MissingPath",
    "Mode",
    "NoAnswer",
    "ProgramMissing",
    "ReadResult",
    "SandboxBackend",
    "SandboxBrokenError",
    "SandboxConfig",
    "SandboxDisposedError",
    "SandboxEnvHint",
    "SandboxError",
    "SandboxInfo",
    "SpawnOptions",
    "SpawnRequest",
    "SpecialPath",
    "StreamName",
    "TextFile",
    "TooLargeFile",
    "WrappedSpawn",
    "create_backend",
    "create_executor",
    "describe_sandbox",
    "detect_engine",
    "format_exec_result",
    "get_executor",
    "over_dormant_cap",
]
