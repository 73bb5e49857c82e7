"""Starts the product's processes as forks of one that has imported what they need.

A test's many small processes then cost what they do, not what they import. `Parent` is
for tests; `python warm.py parent …` is that process itself, and
`python warm.py cli ADDRESS MODULES …` is `strategos …`, whose processes start there.
`python warm.py pytest ADDRESS … CODE` is `python … CODE` of a worker of pytest.
`python warm.py kernel ADDRESS MODULES …` is a notebook's kernel, whose processes start
there too.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import json
import logging
import os
import runpy
import select
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from strategos.components import fork_listener, fork_server, processes, worker_process
from strategos.components.trainer.compat import autograph

_PR_SET_NAME = 15
_CLI = "strategos.pipeline.cli"
_WORKER = "pytest"
_KERNEL = "kernel"


class Parent:
    """A process that is forked; any process may ask for forks of it.

    Args:
      address: Of its socket.
      modules: What its forks run as `__main__`.
      env: Variables that count while it imports.
      user: The command that starts it as another user, such as `unshare`.
    """

    def __init__(
        self,
        address: str,
        modules: Sequence[str],
        env: Mapping[str, str],
        user: Sequence[str] = (),
    ):
        self.address, self._modules, self._env = address, modules, env
        self.user = tuple(user)

    def serve(self, imports: Sequence[str]) -> None:
        """Listens; the process starts and imports when it is first asked for a fork."""
        listening, errors = fork_listener.listen(self.address), os.dup(2)
        target, words = self._serve_once_asked, (listening, errors, imports)
        threading.Thread(target=target, args=words, daemon=True).start()

    def _serve_once_asked(
        self, listening: socket.socket, errors: int, imports: Sequence[str]
    ) -> None:
        """Waits for its end: the kernel kills it when this thread ends."""
        select.select([listening], [], [])
        number = listening.fileno()
        subprocess.run(
            [
                *(*self.user, sys.executable, "-W", "ignore", __file__, "parent"),
                *(str(os.getpid()), str(number), self.address),
                *map(",".join, (self._modules, imports)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            env={**os.environ, **self._env},
            pass_fds=[number],
        )

    def start(self, module: str, arguments: Sequence[str], **how: Any) -> Any:
        """Stands in for `processes.start`."""
        return _start(self.address, self._modules, module, arguments, **how)

    def script(self, code: str, *arguments: str, **environ: str) -> Fork:
        """Starts `python -c code *arguments`; a failed assertion shows its errors.

        Its standard input ends when it is asked for its answer, or with `answers`.
        """
        file = tempfile.mkstemp(".py", dir=Path(self.address).parent)[1]
        Path(file).write_text(code)
        how = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        env = {**os.environ, **self._env, **environ}
        # Apart: a thread that prints a traceback would break a line of the output.
        with open(f"{file}.log", "wb") as errors:
            return Fork(self.address, file, arguments, stderr=errors, env=env, **how)

    @staticmethod
    def answers(forks: Sequence[Fork]) -> list[Any]:
        """The JSON that each prints, before any of them ends.

        A worker that ends takes away what others still receive from it: its code ends
        with `sys.stdin.read()`.
        """
        found = []
        for fork in forks:
            printed = []
            for line in map(bytes.decode, fork.stdout):
                printed.append(line)
                if _is_json(line):
                    break
            else:
                raise AssertionError("".join(printed) + fork.errors())
            found.append(json.loads(line))
        for fork in forks:
            fork.output()
        return found

    def strategos(
        self, *arguments: str, env: Mapping[str, str], cwd: str, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Runs `strategos *arguments` as a fork, whose processes are forks too."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            how = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err}
            fork = Fork(self.address, _CLI, arguments, env=env, cwd=cwd, **how)
            code = fork.wait(timeout)
            printed = [file.seek(0) or file.read() for file in (out, err)]
        return subprocess.CompletedProcess(["strategos", *arguments], code, *printed)

    def cli(self) -> list[str]:
        """The command that is `strategos` and starts its processes here."""
        modules = ",".join(self._modules)
        return [sys.executable, __file__, "cli", self.address, modules]

    def kernel(self) -> list[str]:
        """The command of a notebook's kernel, but for its arguments."""
        modules = ",".join(self._modules)
        return [sys.executable, __file__, _KERNEL, self.address, modules]

    def worker(self) -> str:
        """The command in place of Python's for a worker of pytest."""
        return shlex.join([sys.executable, __file__, _WORKER, self.address])


_cold = processes.start


def _start(
    address: str,
    modules: Sequence[str],
    module: str,
    arguments: Sequence[str],
    **how: Any,
) -> Any:
    if module not in modules:
        return _cold(module, arguments, **how)
    return Fork(address, module, arguments, **how)


class Fork:
    """As much of a `Popen` as is asked for."""

    def __init__(
        self,
        address: str,
        module: str,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str],
        stdin: int,
        stdout: Any,
        stderr: Any,
        cwd: str | None = None,
        pass_fds: Sequence[int] = (),
    ):
        self.args, self.stdin, self.stdout = [module, *arguments], None, None
        given = taken = os.open(os.devnull, os.O_RDWR)
        mine = [given]
        if stdin == subprocess.PIPE:
            given, end = os.pipe()
            self.stdin = os.fdopen(end, "wb")
            mine.append(given)
        if stdout == subprocess.PIPE:
            end, taken = os.pipe()
            self.stdout = os.fdopen(end, "rb")
            mine.append(taken)
        else:
            taken = stdout.fileno()
        errors = taken
        if stderr != subprocess.STDOUT:
            errors = stderr.fileno()
            self._errors = stderr.name
        numbers = {0: given, 1: taken, 2: errors, **{each: each for each in pass_fds}}
        how = {"env": env, "cwd": cwd, "numbers": numbers, "at": address}
        self._child = fork_server.call("__main__", "_become", self.args, **how)
        assert self._child, (
            "the warm process was killed, or the environment is too large"
        )
        for descriptor in mine:
            os.close(descriptor)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._child, name)

    def output(self) -> str:
        """All that it prints, once it has ended well."""
        if self.stdin:
            self.stdin.close()
        with self.stdout:
            output = self.stdout.read().decode()
        assert self.wait() == 0, output + self.errors()
        return output

    def errors(self) -> str:
        """What a script has printed on its standard error."""
        return Path(self._errors).read_text()

    def answer(self) -> Any:
        """The JSON in the last line of its output that is some."""
        lines = filter(_is_json, self.output().splitlines())
        return json.loads(list(lines)[-1])

    def communicate(self, message: bytes) -> None:
        """Sends its standard input and waits for its end."""
        with self.stdin:
            self.stdin.write(message)
        self.wait()


def _is_json(line: str) -> bool:
    return line[:1] in ("[", "{")


def _parent(
    test: int, listening: int, address: str, modules: list[str], imports: list[str]
) -> None:
    """Forks for each connection, until the process `test` ends."""
    processes.start = functools.partial(_start, address, modules)
    fork_listener.serve(socket.socket(fileno=listening), test, imports)


def _become(module: str, *arguments: str) -> None:
    """Runs `module` in a fork."""
    code: str | int | None = 1
    try:
        _enter_network(os.environ.get("NETWORK"))
        _be_recognized(module)
        logging.root.handlers.clear()
        if module not in (_CLI, _WORKER) and not os.environ.get("REHEARSED"):
            _rehearse_nothing()
        _main(module, arguments)
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    worker_process.leave(code)


def _rehearse_nothing() -> None:
    """Leaves out the export beside the gang, up to a fourth of a small run.

    `REHEARSED=1` in the environment keeps it; processes that start cold have it.
    """
    from strategos.components.trainer.run import rehearsal

    rehearsal.rehearsed = lambda *_: contextlib.nullcontext(lambda: None)


def _be_recognized(module: str) -> None:
    """Names the process, and keeps the state folder of its workspace open.

    A fork shows the command and the environment that its parent was started with.
    """
    name = module.rpartition(".")[2].encode()
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name, 0, 0, 0)
    folder = os.environ.get("XDG_STATE_HOME", "")
    if os.path.isdir(folder):
        os.open(folder, os.O_RDONLY)


def _enter_network(name: str | None) -> None:
    """Makes this process's network that of `ip netns add NAME`."""
    if name:
        with open(f"/run/netns/{name}") as namespace:
            code = ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0)
        assert code == 0, os.strerror(ctypes.get_errno())


def _main(module: str, arguments: Sequence[str]) -> None:
    more = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [os.getcwd(), *filter(None, more)]
    if module == _CLI:
        sys.exit(importlib.import_module(_CLI).main(arguments))
    elif module == _WORKER:
        processes.start = _cold  # its tests say what starts warm
        exec(arguments[-1], {})
    elif module.endswith(".py"):
        if "tensorflow" in sys.modules:  # traced as fast as in processes that train
            autograph.convert_user_code_only()
        sys.argv = [module, *arguments]
        runpy.run_path(module, run_name="__main__")
    else:
        sys.argv = [module, str(os.getppid()), *arguments]
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def _cli(address: str, modules: list[str], arguments: list[str]) -> None:
    from strategos.pipeline import cli

    processes.start = functools.partial(_start, address, modules)
    sys.path[0] = os.getcwd()
    sys.exit(cli.main(arguments))


def _kernel(address: str, modules: list[str], arguments: list[str]) -> None:
    from ipykernel.kernelapp import launch_new_instance

    processes.start = functools.partial(_start, address, modules)
    sys.path[0] = ""
    launch_new_instance(argv=arguments)


def _worker(address: str, arguments: list[str]) -> None:
    """Its input, output and errors are those of this process."""
    how = {"stdin": None, "stdout": sys.stdout, "stderr": sys.stderr}
    how |= {"env": os.environ, "pass_fds": [sys.stdin.fileno()]}
    sys.exit(Fork(address, _WORKER, arguments, **how).wait())


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "parent":
        lists = [word.split(",") for word in words[3:]]
        _parent(int(words[0]), int(words[1]), words[2], *lists)
    if what == _WORKER:
        _worker(words[0], words[1:])
    if what == _KERNEL:
        _kernel(words[0], words[1].split(","), words[2:])
        sys.exit()
    _cli(words[0], words[1].split(","), words[2:])
