"""Output of any size and kind, and commands of any size."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from sandbox_exec import ExecSpec
from tests.engine.faults.outside import Outside, asyncio_only, within

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

MEGABYTE = 2**20

SCRIPT = """
import json
import sys
import anyio
from sandbox_exec import ExecSpec, LocalDockerExecutor, SandboxConfig

def peak():
    # Not getrusage: what it says begins with the peak of the process that started this one.
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024

async def main():
    config = SandboxConfig(image="sandbox-exec/busybox", engine=sys.argv[1], deployment=sys.argv[2])
    async with LocalDockerExecutor(config) as executor:
        # As much as is kept, so that what the caps allow is not counted as growth.
        fill = "head -c 200000 /dev/zero; head -c 200000 /dev/zero >&2"
        await executor.run(ExecSpec(fill, "chat"))
        before = peak()
        result = await executor.run(ExecSpec(sys.argv[4], "chat", 60))
        gaps = (result.stdout_gap, result.stderr_gap)
        print(json.dumps({
            "growth": peak() - before,
            "exit_code": result.exit_code,
            "timed_out": result.timed_out,
            "truncated": sorted(result.truncated),
            "omitted": sum(gap.omitted_bytes for gap in gaps if gap),
            "kept": len(result.stdout) + len(result.stderr),
            "head": result.stdout[:10],
            "tail": result.stdout[-9:],
            "error_tail": result.stderr[-9:],
        }))

anyio.run(main, backend=sys.argv[3])
"""

BLOCKS = "dd if=/dev/zero bs=1M count={} 2>/dev/null"
BOTH = (
    f"{{ echo begin; {BLOCKS.format(1024)}; echo; echo the end; }} & "
    f"{{ {BLOCKS.format(1024)}; echo; echo the end; }} >&2; wait"
)
LINES = (
    "{ echo begin; yes out | head -c 1073741824; echo; echo the end; } & "
    "{ yes err | head -c 1073741824; echo; echo the end; } >&2; wait"
)
"""The same amount in lines, which costs the sandbox itself most of the time."""


async def measured(
    shared: Outside, tmp_path: Path, backend: str, command: str
) -> dict[str, object]:
    """Run a command in a process of its own and return what its caller saw and needed."""
    script = tmp_path / "caller.py"
    script.write_text(SCRIPT)
    argv = [sys.executable, str(script), shared.program, shared.deployment, backend, command]
    with anyio.fail_after(100):
        ended = await anyio.run_process(argv, env=dict(os.environ), stderr=subprocess.STDOUT)
    found: dict[str, object] = json.loads(ended.stdout.splitlines()[-1])
    print(found)
    return found


@pytest.mark.parametrize(
    ("backend", "command"),
    [
        pytest.param("asyncio", BOTH, id="asyncio-blocks"),
        pytest.param("trio", BOTH, id="trio-blocks", marks=pytest.mark.soak),
        pytest.param("asyncio", LINES, id="asyncio-lines", marks=pytest.mark.soak),
        pytest.param("trio", LINES, id="trio-lines", marks=pytest.mark.soak),
    ],
)
@asyncio_only
async def test_two_gigabytes_on_both_streams(
    shared: Outside, tmp_path: Path, backend: str, command: str
) -> None:
    """2 GB cost less than 20 MB here; neither stream starves the other, both are marked as cut,
    and head and tail are the command's own.
    """
    found = await measured(shared, tmp_path, backend, command)
    assert found["growth"] < 20 * MEGABYTE  # type: ignore[operator]  # an int
    assert (found["exit_code"], found["timed_out"]) == (0, False)
    assert found["truncated"] == ["stderr", "stdout"]
    # "begin", and a blank line and "the end" on each.
    printed = 2 * 2**30 + 6 + 2 * 9
    assert found["omitted"] + found["kept"] == printed  # type: ignore[operator]  # ints
    assert str(found["head"]).startswith("begin\n")
    assert found["tail"] == found["error_tail"]
    assert str(found["tail"]).endswith("\nthe end\n")


@pytest.mark.soak
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@asyncio_only
async def test_two_gigabytes_without_a_newline(
    shared: Outside, tmp_path: Path, backend: str
) -> None:
    """The same for one stream of zeros."""
    found = await measured(shared, tmp_path, backend, BLOCKS.format(2048))
    assert found["growth"] < 20 * MEGABYTE  # type: ignore[operator]  # an int
    assert (found["exit_code"], found["timed_out"]) == (0, False)
    assert found["truncated"] == ["stdout"]
    assert (found["omitted"], found["kept"]) == (2 * 2**30 - 100_000, 100_000)


@asyncio_only
async def test_endless_output_ends_with_the_limit(shared: Outside) -> None:
    """A command that never stops printing is ended by its limit, on time, with what it said."""
    async with shared.executor() as executor:
        async with within(1 + 2 + 1.5, "an endless command"):
            result = await executor.run(ExecSpec("yes & yes err >&2", "chat", 1))
        assert (result.exit_code, result.timed_out) == (-1, True)
        assert result.truncated == {"stdout", "stderr"}
        assert result.stdout.startswith("y\ny\n")
        assert result.stderr.startswith("err\nerr\n")
        await shared.at_rest("chat")


@asyncio_only
async def test_standard_output_does_not_starve_standard_error(shared: Outside) -> None:
    """What is said on the quiet stream arrives while the other is flooded."""
    async with shared.executor() as executor:
        command = "echo first >&2; yes | head -c 50000000; echo last >&2"
        result = await executor.run(ExecSpec(command, "chat"))
        assert result.stderr == "first\nlast\n"
        assert result.truncated == {"stdout"}


async def test_what_is_kept_of_too_much(shared: Outside) -> None:
    """Head and tail of each stream are exact, the gap says where and how much is missing, and a
    stream of exactly the cap is whole.
    """
    async with shared.executor(max_output_bytes=1000) as executor:
        result = await executor.run(ExecSpec("seq 10000", "chat"))
        whole = "".join(f"{number}\n" for number in range(1, 10001))
        gap = result.stdout_gap
        assert gap is not None
        assert result.stdout[: gap.at] == whole[: gap.at]
        assert result.stdout[gap.at :] == whole[gap.at - len(result.stdout) :]
        assert gap.omitted_bytes == len(whole) - 1000
        assert result.truncated == {"stdout"}
        for size in (999, 1000):
            exact = await executor.run(ExecSpec(f"head -c {size} /dev/zero >&2", "chat"))
            assert (exact.stderr, exact.truncated) == ("\0" * size, frozenset())
        more = await executor.run(ExecSpec("head -c 1001 /dev/zero >&2", "chat"))
        assert (len(more.stderr), set(more.truncated)) == (1000, {"stderr"})


@pytest.mark.parametrize("session", ["chat", None], ids=["session", "one-off"])
async def test_bytes_that_are_no_text(shared: Outside, session: str | None) -> None:
    """Invalid UTF-8 is replaced, NUL and the guest's own mark come through, and nothing raises."""
    async with shared.executor() as executor:
        command = r"printf 'a\377\200b\000\036c\303\251\342\202'; printf '\355\240\200' >&2"
        result = await executor.run(ExecSpec(command, session))
        expected = b"a\xff\x80b\0\x1ec\xc3\xa9\xe2\x82".decode("utf-8", "replace")
        assert (result.stdout, result.exit_code) == (expected, 0)
        assert result.stderr == b"\xed\xa0\x80".decode("utf-8", "replace")


@pytest.mark.parametrize("session", ["chat", None], ids=["session", "one-off"])
async def test_output_without_a_newline(shared: Outside, session: str | None) -> None:
    """The end of the output is where the command stopped, also where it looks like a frame."""
    async with shared.executor() as executor:
        for text in ("no newline", "", r"\036", r"\036end 0 -", r"x\036 end 7 -\n"):
            command = f"printf '{text}'; printf '{text}' >&2; exit 3"
            result = await executor.run(ExecSpec(command, session))
            expected = text.replace(r"\036", "\x1e").replace(r"\n", "\n")
            assert (result.stdout, result.stderr, result.exit_code) == (expected, expected, 3)


@pytest.mark.parametrize("session", ["chat", None], ids=["session", "one-off"])
@pytest.mark.parametrize("image", ["busybox", "debian"])
@asyncio_only
async def test_a_command_of_three_megabytes(
    shared: Outside, session: str | None, image: str
) -> None:
    """Size alone stops no command; it runs once, whole, with all of its words in place."""
    payload = "".join(f"{number:07}\n" for number in range(393_216))
    async with shared.executor(image=f"sandbox-exec/{image}") as executor:
        command = f"cat <<'EOF' | md5sum\n{payload}EOF\necho ${{#}}"
        assert len(command) > 3_000_000
        result = await executor.run(ExecSpec(command, session))
        digest = hashlib.md5(payload.encode(), usedforsecurity=False).hexdigest()
        assert (result.stdout, result.stderr) == (f"{digest}  -\n0\n", "")
        assert result.exit_code == 0
