from __future__ import annotations

import asyncio
import base64
import contextvars
import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from pydantic import SecretStr

from sayso.commands import CommandResult, LocalShell, kubeconfigs
from sayso.commands.suggestions import SUGGEST_COMMANDS, read_suggestion
from sayso.errors import ToolInputError
from sayso.wire.messages import CommandFile, PlatformContext

T = TypeVar("T")

CONTEXT = SimpleNamespace(platform=PlatformContext())


def run(shell: LocalShell, command: str, files: Any = (), context: Any = CONTEXT) -> CommandResult:
    return asyncio.run(shell.run(command, files, conversation="c1", context=context))


def file(path: str, content: str = "x") -> CommandFile:
    return CommandFile(file_path=path, file_content=content)


def until(condition: Callable[[], T], seconds: float = 60) -> T:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.01)
    return found


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat")
        return not state.exists() or state.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (ProcessLookupError, FileNotFoundError):
        return False


def pid_in(path: Path) -> Callable[[], int]:
    return lambda: int((path.exists() and path.read_text().strip()) or 0)


@pytest.fixture
def shell(tmp_path: Path) -> LocalShell:
    return LocalShell(tmp_path / "work", timeout=120)


def test_of_two_secrets_that_begin_alike_the_one_that_was_cut_is_taken_out(tmp_path: Path) -> None:
    cut, other = "eyJhbGciOiJSUzI1NiJ9.eyJhdWQiOiJh", "eyJhdHRyIjoi" * 4
    secrets = {"cut": cut, "other": other}
    context = SimpleNamespace(platform=PlatformContext(aws_credentials=secrets))
    shell = LocalShell(tmp_path, max_output=2000)
    # The first 1000 bytes end with "eyJh", the beginning of the part after the dot.
    output = run(shell, f"printf '%0975d{cut}'; head -c 9000 /dev/zero", context=context).output
    assert "bytes of output cut" in output
    assert cut[:4] not in output


def test_long_output_is_cut_at_once_beside_a_large_kubeconfig(tmp_path: Path) -> None:
    text = base64.b64encode(os.urandom(750_000)).decode()
    context = SimpleNamespace(platform=PlatformContext(kubeconfig=SecretStr(text)))
    shell = LocalShell(tmp_path, max_output=200_000)
    start = time.monotonic()
    output = run(shell, "head -c 900000 /dev/zero", context=context).output
    assert "bytes of output cut" in output
    assert time.monotonic() - start < 10


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")
def test_no_descriptor_is_left_open(shell: LocalShell) -> None:
    async def scenario() -> tuple[int, int]:
        async def round_of_runs() -> int:
            for command in ("true", "exit 1", "sleep 3000 & echo $! > child"):
                await shell.run(command, conversation="c1", context=CONTEXT)
            os.kill(pid_in(shell.folder("c1") / "child")(), signal.SIGKILL)
            await shell.run("true", [file("../x")], conversation="c1", context=CONTEXT)
            with pytest.raises(TimeoutError):
                work = shell.run("sleep 3000", conversation="c1", context=CONTEXT)
                await asyncio.wait_for(work, 0.1)
            gc.collect()
            return len(os.listdir("/proc/self/fd"))

        return await round_of_runs(), await round_of_runs()

    first, second = asyncio.run(scenario())
    # Threads of earlier tests may close some of theirs meanwhile.
    assert second <= first


def test_output_and_errors_come_in_their_order(shell: LocalShell) -> None:
    got = run(shell, "echo one; echo two >&2; echo three")
    assert got == CommandResult("one\ntwo\nthree\n", exit_code=0)


def test_exit_code_is_stated_when_it_is_not_zero(shell: LocalShell) -> None:
    got = run(shell, "echo no; exit 3")
    assert got == CommandResult("no\n[exit code 3]", exit_code=3)
    assert run(shell, "exit 4").output == "[exit code 4]"


def test_command_that_dies_of_a_signal_failed(shell: LocalShell) -> None:
    got = run(shell, "echo hi; kill -SEGV $$")
    assert got.failed and got.exit_code == -signal.SIGSEGV
    assert got.output == "Error: the command was ended by SIGSEGV\nhi"


def test_standard_input_is_empty(shell: LocalShell) -> None:
    assert run(shell, "cat; echo end").output == "end\n"


def test_output_that_is_no_utf8_is_replaced(shell: LocalShell) -> None:
    assert run(shell, r"printf 'a\377b'").output == "a\ufffdb"


def test_environment_is_clean(
    shell: LocalShell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-the-service")
    monkeypatch.setenv("LANG", "C.UTF-8")
    lines = run(shell, "env").output.splitlines()
    env = dict(line.split("=", 1) for line in lines)
    folder = shell.folder("c1")
    assert set(env) - {"PWD", "SHLVL", "_", "OLDPWD"} == {"PATH", "HOME", "LANG", "TERM", "TMPDIR"}
    assert env["HOME"] == str(folder) and env["TERM"] == "dumb"
    assert Path(env["TMPDIR"]).parent == folder
    assert run(shell, "pwd").output == f"{folder}\n"


def test_env_of_the_author_is_added(tmp_path: Path) -> None:
    shell = LocalShell(tmp_path, env={"REGION": "eu", "TERM": "vt100"})
    assert run(shell, "echo $REGION $TERM").output == "eu vt100\n"
    context = SimpleNamespace(platform=PlatformContext(tenant_name="acme"))
    by_context = LocalShell(tmp_path, env=lambda c: {"TENANT": c.platform.tenant_name})
    assert run(by_context, "echo $TENANT", context=context).output == "acme\n"


def test_env_function_sees_the_context_variables_of_the_request(tmp_path: Path) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("seen")
    shell = LocalShell(tmp_path, env=lambda _: {"V": variable.get()})
    assert run(shell, "echo $V").output == "seen\n"


def test_failing_env_function_runs_nothing(tmp_path: Path) -> None:
    def broken(_: Any) -> dict[str, str]:
        raise LookupError("no region")

    with pytest.raises(LookupError, match="no region"):
        run(LocalShell(tmp_path, env=broken), "touch ran")
    with pytest.raises(ValueError, match="'N' must be a string"):
        run(LocalShell(tmp_path, env=lambda _: {"N": 1}), "touch ran")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="env gave NoneType in place of a dict"):
        run(LocalShell(tmp_path, env=lambda _: None), "touch ran")  # type: ignore[arg-type,return-value]
    assert not list(tmp_path.rglob("ran"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"timeout": 0}, "timeout"),
        ({"max_output": 0}, "max_output"),
        ({"env": {"A=B": "c"}}, "'A=B'"),
        ({"env": {"A": 3}}, "'A'"),
    ],
)
def test_wrong_options_are_refused(options: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        LocalShell(**options)


def test_env_function_without_the_context_is_refused() -> None:
    with pytest.raises(TypeError, match=r"LocalShell: env: .* cannot be called with \(context\)"):
        LocalShell(env=lambda: {"A": "b"})  # type: ignore[misc,arg-type]


def test_working_directory_belongs_to_the_conversation(shell: LocalShell) -> None:
    async def scenario() -> list[str]:
        outputs = []
        for conversation, command in [
            ("c1", "echo one > kept"),
            ("c1", "cat kept"),
            ("c2", "ls"),
            ("../../etc", "pwd"),
        ]:
            got = await shell.run(command, conversation=conversation, context=CONTEXT)
            outputs.append(got.output)
        return outputs

    outputs = asyncio.run(scenario())
    assert outputs[:3] == ["", "one\n", ""]
    assert shell.workdir and Path(outputs[3].strip()).parent == shell.workdir
    assert (shell.folder("c1").stat().st_mode & 0o777) == 0o700
    assert len({shell.folder(c) for c in ("c1", "c2", "../../etc", "\ud800")}) == 4


def test_without_workdir_a_private_temporary_folder_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    shell, other_process = LocalShell(), LocalShell()
    assert run(shell, "echo a > f").exit_code == 0
    assert run(other_process, "cat f").output == "a\n"
    base = shell.folder("c1").parent
    assert base.parent == tmp_path and (base.stat().st_mode & 0o777) == 0o700
    old = shell.folder("old")
    os.utime(old, (1, 1))
    run(LocalShell(), "true")
    assert not old.exists() and shell.folder("c1").joinpath("f").exists()


def test_temporary_folder_of_someone_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "target").mkdir()
    (tmp_path / f"sayso-{os.geteuid()}").symlink_to(tmp_path / "target")
    got = run(LocalShell(), "touch ran")
    assert got.failed and not list(tmp_path.rglob("ran"))


def test_files_are_written_with_their_folders(shell: LocalShell) -> None:
    files = [file("a/b/run.sh", "echo ü"), file("./top.txt", "1"), file("a/b/run.sh", "echo ö")]
    assert run(shell, "sh a/b/run.sh; cat top.txt; stat -c %a top.txt", files).output == "ö\n1600\n"
    assert run(shell, "cat top.txt", [file("top.txt", "second")]).output == "second"


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../up",
        "a/../../up",
        "a/..",
        "",
        ".",
        "./",
        "a/",
        "a\0b",
        "~/x",
        "~root/x",
        "\ud800",
        "x" * 300,
    ],
)
def test_path_that_leads_out_is_refused_and_nothing_runs(shell: LocalShell, path: str) -> None:
    got = run(shell, "touch ran", [file("fine.txt"), file(path)])
    assert got.failed and got.exit_code is None and got.output.startswith("Error: ")
    assert len(got.output) < 400
    got.output.encode()
    assert shell.workdir and not list(shell.workdir.rglob("ran"))
    assert not (shell.workdir / "up").exists()


def test_no_link_leads_out_of_the_working_directory(shell: LocalShell, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "victim").write_text("whole")
    folder = shell.folder("c1")
    (folder / "dir").symlink_to(outside)
    (folder / "link").symlink_to(outside / "victim")
    (folder / "plain").write_text("")
    os.link(outside / "victim", folder / "hard")
    os.mkfifo(folder / "fifo")
    for path in ("dir/victim", "dir/new", "link", "plain/x", "fifo", "dir", ".tmp"):
        got = run(shell, "touch ran", [file(path, "changed")])
        assert got.failed and "nothing was run" in got.output, path
    assert run(shell, "cat hard", [file("hard", "changed")]).output == "changed"
    assert (outside / "victim").read_text() == "whole"
    assert os.listdir(outside) == ["victim"]
    assert not (folder / "ran").exists()


def test_working_directory_that_became_a_link_is_refused(shell: LocalShell, tmp_path: Path) -> None:
    folder = shell.folder("c1")
    (folder / ".tmp").rmdir()
    folder.rmdir()
    folder.symlink_to(tmp_path)
    assert run(shell, "touch ran").failed
    assert not (tmp_path / "ran").exists()


def test_long_output_loses_its_middle(tmp_path: Path) -> None:
    shell = LocalShell(tmp_path, max_output=1000)
    text = run(shell, "echo first; head -c 5000000 /dev/zero | tr '\\0' x; echo; echo last").output
    assert text.startswith("first\nxxx") and text.endswith("xxx\nlast\n")
    assert "[... 4999012 of 5000012 bytes of output cut ...]" in text
    assert text.count("x") == 1000 - len("first\n\nlast\n")
    assert run(shell, "head -c 1000 /dev/zero | tr '\\0' y").output == "y" * 1000


def test_timeout_kills_everything_the_command_started(tmp_path: Path) -> None:
    shell = LocalShell(tmp_path, timeout=3)
    got = run(shell, "trap '' TERM; (trap '' TERM; sleep 3000) & echo $! > child; echo here; wait")
    assert got.failed and got.timed_out
    assert got.output == "Error: the command ran longer than 3 seconds and was killed\nhere"
    assert not alive(pid_in(shell.folder("c1") / "child")())


def test_command_ends_politely_when_it_can(tmp_path: Path) -> None:
    shell = LocalShell(tmp_path, timeout=3)
    got = run(shell, "trap 'echo bye; exit 0' TERM; echo hi; while :; do sleep 0.05; done")
    assert got.timed_out and got.output.endswith("\nbye")


@pytest.mark.skipif(sys.platform != "linux", reason="finds the session in /proc")
def test_timeout_reaches_process_groups_of_their_own(tmp_path: Path) -> None:
    shell = LocalShell(tmp_path, timeout=3)
    run(shell, "set -m; sleep 3000 & echo $! > child; timeout 3000 sleep 3001; echo no")
    folder = shell.folder("c1")
    assert not alive(pid_in(folder / "child")())
    assert not [p for p in Path("/proc").glob("[0-9]*/cwd") if _points_to(p, folder)]


def _points_to(link: Path, folder: Path) -> bool:
    try:
        return link.readlink() == folder
    except OSError:
        return False


def test_output_without_end_is_stopped_by_the_timeout(tmp_path: Path) -> None:
    shell = LocalShell(tmp_path, timeout=2, max_output=100)
    got = run(shell, "yes")
    assert got.timed_out and "bytes of output cut" in got.output


def test_grandchild_that_holds_the_output_does_not_hang_the_command(shell: LocalShell) -> None:
    got = run(shell, "sleep 3000 & echo $! > child; echo done")
    pid = pid_in(shell.folder("c1") / "child")()
    try:
        assert got.output.startswith("done\n[processes") and not got.failed
        assert alive(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


def test_grandchild_that_escaped_its_session_does_not_hang_the_timeout(tmp_path: Path) -> None:
    shell = LocalShell(tmp_path, timeout=3)
    got = run(shell, "setsid sleep 3000 & echo $! > child; echo here; sleep 3000")
    pid = pid_in(shell.folder("c1") / "child")()
    try:
        assert got.timed_out and got.output.endswith("here")
    finally:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


def test_late_output_of_a_short_grandchild_is_still_read(
    shell: LocalShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sayso.service.processes.LINGER", 20)
    assert run(shell, "(sleep 0.05; echo late) & echo first").output == "first\nlate\n"


def test_cancelled_command_leaves_no_process(shell: LocalShell) -> None:
    folder = shell.folder("c1")
    command = "echo $$ > shell; sleep 3000 & echo $! > child; wait"

    async def scenario() -> None:
        task = asyncio.create_task(shell.run(command, conversation="c1", context=CONTEXT))
        await asyncio.to_thread(until, pid_in(folder / "child"))
        pids = [pid_in(folder / name)() for name in ("shell", "child")]
        assert all(alive(pid) for pid in pids)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not any(alive(pid) for pid in pids)

    asyncio.run(scenario())


def test_second_cancellation_does_not_leave_early(shell: LocalShell) -> None:
    folder = shell.folder("c1")
    command = "trap '' TERM; echo $$ > shell; while :; do sleep 0.1; done"

    async def scenario() -> None:
        task = asyncio.create_task(shell.run(command, conversation="c1", context=CONTEXT))
        pid = await asyncio.to_thread(until, pid_in(folder / "shell"))
        for _ in range(5):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not alive(pid)

    asyncio.run(scenario())


def test_cancelling_at_any_moment_leaves_no_process(shell: LocalShell) -> None:
    folder = shell.folder("c1")

    async def one(number: int) -> None:
        command = f"echo $$ > pid{number}; exec sleep 3000"
        work = shell.run(command, conversation="c1", context=CONTEXT)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(work, number * 0.002)

    async def scenario() -> None:
        await asyncio.gather(*(one(number) for number in range(20)))

    asyncio.run(scenario())
    pids = [int(path.read_text() or 0) for path in folder.glob("pid*")]
    assert not any(pid and alive(pid) for pid in pids)
    assert not [p for p in Path("/proc").glob("[0-9]*/cwd") if _points_to(p, folder)]


def test_loop_goes_on_while_a_command_runs(shell: LocalShell) -> None:
    command = "while ! test -e go; do sleep 0.05; done; echo went on"

    async def scenario() -> str:
        task = asyncio.create_task(shell.run(command, conversation="c1", context=CONTEXT))
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert not task.done()
        (shell.folder("c1") / "go").touch()
        return (await task).output

    assert asyncio.run(scenario()) == "went on\n"


def on_a_thread_with(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    outcome: list[T] = []

    def main() -> None:
        asyncio.set_event_loop(loop)
        outcome.append(loop.run_until_complete(work))
        loop.close()

    thread = threading.Thread(target=main)
    thread.start()
    thread.join(120)
    return outcome[0]


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_commands_run_on_loops_of_other_threads(shell: LocalShell, kind: str) -> None:
    import uvloop

    loop = uvloop.new_event_loop() if kind == "uvloop" else asyncio.new_event_loop()
    folder = shell.folder("c1")

    async def scenario() -> list[str]:
        running = [
            shell.run(f"echo {n}; exit {n}", conversation="c1", context=CONTEXT) for n in range(4)
        ]
        outputs = [got.output for got in await asyncio.gather(*running)]
        task = asyncio.create_task(
            shell.run("echo $$ > p; sleep 3000", conversation="c1", context=CONTEXT)
        )
        pid = await asyncio.to_thread(until, pid_in(folder / "p"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not alive(pid)
        return outputs

    assert on_a_thread_with(loop, scenario()) == [
        "0\n",
        *(f"{n}\n[exit code {n}]" for n in (1, 2, 3)),
    ]


def with_kubeconfig(text: str) -> Any:
    return SimpleNamespace(platform=PlatformContext(kubeconfig=SecretStr(text)))


def test_kubeconfig_is_a_private_file_while_the_command_runs(shell: LocalShell) -> None:
    encoded = base64.encodebytes(b"clusters: [" + b"a" * 100 + b"]").decode()
    context = with_kubeconfig(encoded)
    command = "stat -c %a $KUBECONFIG; cat $KUBECONFIG; echo; echo $KUBECONFIG"
    mode, content, path = run(shell, command, context=context).output.splitlines()
    assert mode == "600" and content.startswith("clusters: [aaa")
    assert not Path(path).exists()
    assert Path(path).parent == shell.workdir
    assert run(shell, "exit 3", context=context).exit_code == 3
    assert shell.workdir and not list(shell.workdir.glob(".sayso-kubeconfig*"))


def test_kubeconfig_goes_on_timeout_and_cancellation(tmp_path: Path) -> None:
    shell = LocalShell(tmp_path, timeout=0.8)
    context = with_kubeconfig(base64.b64encode(b"x").decode())
    assert run(shell, "sleep 3000", context=context).timed_out
    assert not list(tmp_path.glob(".sayso-kubeconfig*"))
    shell.timeout = 60

    async def scenario() -> None:
        task = asyncio.create_task(shell.run("sleep 3000", conversation="c1", context=context))
        await asyncio.to_thread(until, lambda: list(tmp_path.glob(".sayso-kubeconfig*")))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    assert not list(tmp_path.glob(".sayso-kubeconfig*"))


KILLED = """
import asyncio, sys
from types import SimpleNamespace
from pydantic import SecretStr
from sayso import LocalShell, PlatformContext
context = SimpleNamespace(platform=PlatformContext(kubeconfig=SecretStr("eA==")))
shell = LocalShell(sys.argv[1] or None)
asyncio.run(shell.run("kill -9 $PPID", conversation="c", context=context))
"""


@pytest.mark.parametrize("named", [True, False])
def test_kubeconfig_of_a_killed_process_goes_when_the_next_one_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    mine = tmp_path / "kubeconfig-mine"
    mine.touch()
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    folder = f"{tmp_path / 'work'}" if named else ""
    killed = subprocess.run([sys.executable, "-c", KILLED, folder], env=environ)
    assert killed.returncode == -signal.SIGKILL
    (left,) = tmp_path.glob("*/.sayso-kubeconfig*")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with kubeconfigs.as_file("eA==", left.parent) as used:
        shell = LocalShell(folder or None)
        if not named:
            shell.folder("c")
        assert used.read_bytes() == b"x" and not left.exists()
    assert mine.exists()


def test_kubeconfig_that_is_no_base64_runs_nothing(shell: LocalShell) -> None:
    for text in ("s3cret!", "abcde", "ü"):
        got = run(shell, "touch ran", context=with_kubeconfig(text))
        assert got.failed and "not valid base64" in got.output and text not in got.output
    assert not (shell.folder("c1") / "ran").exists()
    assert run(shell, "echo ${KUBECONFIG-none}", context=with_kubeconfig("")).output == "none\n"


@pytest.mark.parametrize("command", ["a\0b", "echo \ud800", "echo " + "x" * 200_000])
def test_command_that_cannot_start_is_a_failed_result(shell: LocalShell, command: str) -> None:
    got = run(shell, command)
    assert got.failed and got.exit_code is None and len(got.output) < 300
    assert "xxxx" not in got.output


def test_suggestion_becomes_commands_that_are_not_approved() -> None:
    first, second = read_suggestion(
        {
            "commands": [
                {
                    "command": "ls",
                    "intent": "look",
                    "files": [{"file_path": "a", "file_content": "b"}],
                },
                {"command": "pwd", "files": []},
            ]
        }
    )
    assert first.command == "ls" and first.intent == "look" and not first.execute
    assert first.files == [CommandFile(file_path="a", file_content="b")]
    assert second.files is None and second.id is None


@pytest.mark.parametrize(
    ("input", "said"),
    [
        ({}, "'commands' is missing"),
        ({"commands": []}, "commands"),
        ({"commands": ["ls"]}, "commands.0"),
        ({"commands": [{"command": "  "}]}, r"commands\.0\.command"),
        ({"commands": [{"command": ""}]}, r"commands\.0\.command"),
        ({"commands": [{"command": "a\0"}]}, r"commands\.0\.command"),
        ({"commands": [{"command": "ls", "execute": True}]}, "execute"),
        (
            {
                "commands": [
                    {"command": "ls"},
                    {"command": "ls", "files": [{"file_path": "../x", "file_content": ""}]},
                ]
            },
            r"commands\.1\.files.*'\.\.'",
        ),
        ({"commands": [{"command": "\ud800"}]}, "JSON"),
    ],
)
def test_wrong_suggestion_is_told_to_the_model(input: Any, said: str) -> None:
    with pytest.raises(ToolInputError, match=said):
        read_suggestion(input)


def test_schema_of_suggestions_is_what_is_read() -> None:
    import jsonschema_rs

    validator = jsonschema_rs.validator_for(dict(SUGGEST_COMMANDS.input_schema))
    good = {"commands": [{"command": "ls", "files": [{"file_path": "a", "file_content": ""}]}]}
    assert validator.is_valid(good) and read_suggestion(good)
    assert not validator.is_valid({"commands": [{"command": "ls", "execute": True}]})
    assert not validator.is_valid({"commands": []})
