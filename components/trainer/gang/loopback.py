"""Keeps the servers of a gang on one machine out of reach of other hosts.

TensorFlow's gRPC server listens on all interfaces, whatever addresses the cluster has,
and executes operations, file access among them, for anyone who connects. Neither can
be configured. So the kernel suspends each `listen` of a task (seccomp user
notification), and the process that watches the task binds the socket to the loopback
device before the call continues. Needs no privileges; outgoing connections are not
affected.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import ipaddress
import os
import platform
import re
import select
import socket
import struct
from pathlib import Path

from strategos.components.trainer.distribution.environment import ClusterSpec

# AUDIT_ARCH_…, and the numbers of `seccomp` and `listen`, by machine.
_NUMBERS = {"x86_64": (0xC000003E, 317, 50), "aarch64": (0xC00000B7, 277, 201)}
_PIDFD_GETFD = 438  # on every machine
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_SET_MODE_FILTER = 1
# NEW_LISTENER, and SPEC_ALLOW: without it, Linux before 5.16 slows the process down.
_FILTER_FLAGS = 8 | 4
_RET_ALLOW, _RET_USER_NOTIF = 0x7FFF0000, 0x7FC00000
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06  # of classic BPF
_RECEIVE, _SEND = 0xC0502100, 0xC0182101  # SECCOMP_IOCTL_NOTIF_…
_CONTINUE = 1  # SECCOMP_USER_NOTIF_FLAG_CONTINUE
# struct seccomp_notif with the system call's arguments; struct seccomp_notif_resp.
_CALL, _ANSWER = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
_FAMILIES = (socket.AF_INET, socket.AF_INET6)


class Guard:
    """The watching process's side: binds the sockets of a task as it listens.

    Args:
      connection: Connected to the socket that the task passes to `submit`; closed here.

    Attributes:
      refusal: Why the system allows no guard, or "".
      ended: Whether no process is left to guard.
    """

    def __init__(self, connection: socket.socket):
        with connection:
            text, descriptors, _, _ = socket.recv_fds(connection, 1024, 1)
        self.refusal = text.decode().strip()
        self.ended = not descriptors
        self._descriptor = descriptors[0] if descriptors else -1

    def fileno(self) -> int:
        """Readable when a process is about to listen."""
        return self._descriptor

    def answer(self) -> str | None:
        """Binds one socket that is about to listen, and lets the call continue.

        Returns:
          None, or why the socket could not be bound: other hosts can then reach it.
        """
        events = select.poll()
        events.register(self._descriptor, select.POLLIN)
        ready = dict(events.poll(0)).get(self._descriptor, 0)
        self.ended = bool(ready & select.POLLHUP)  # after that, a receive may block
        if not ready & select.POLLIN:
            return None
        call = bytearray(_CALL.size)
        try:
            fcntl.ioctl(self._descriptor, _RECEIVE, call)
        except FileNotFoundError:  # the process was killed meanwhile
            return None
        number, thread, _, _, _, _, descriptor, *_ = _CALL.unpack(call)
        problem = None
        try:
            _restrict(thread, descriptor)
        except OSError as error:
            problem = str(error)
        answer = bytearray(_ANSWER.pack(number, 0, 0, _CONTINUE))
        with contextlib.suppress(FileNotFoundError):  # killed, or restarts the call
            fcntl.ioctl(self._descriptor, _SEND, answer)
        return problem

    def close(self) -> None:
        """Ends the guard; remaining processes can no longer listen."""
        self.ended = True
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def submit(connection: socket.socket) -> None:
    """Puts this thread, and everything that it starts from now on, under a `Guard`.

    If the system does not allow it, the guard's `refusal` has the reason.

    Args:
      connection: Its other end belongs to the `Guard`; closed here.
    """
    with connection:
        try:
            descriptor = _suspend_listen()
        except OSError as error:
            connection.sendall(str(error).encode())
            return
        socket.send_fds(connection, [b" "], [descriptor])
        os.close(descriptor)


def is_local(cluster: ClusterSpec) -> bool:
    """Whether all addresses of the cluster are loopback addresses."""
    hosts = [cluster.address_of(task)[0].strip("[]") for task in cluster.tasks]
    return bool(hosts) and all(map(_is_loopback, hosts))


def exposure(cluster: ClusterSpec, reason: str) -> str:
    """The warning that other hosts can reach the servers of a local cluster.

    Args:
      cluster: All tasks with their addresses.
      reason: The system's reason for not allowing a guard.
    """
    servers = ", ".join(
        f"{task.name} on port {cluster.address_of(task)[1]}" for task in cluster.tasks
    )
    return (
        f"other hosts can connect to this training ({servers}): TensorFlow's server "
        "listens on all interfaces and lets whoever connects read and write files. "
        f"This system does not allow it to be restricted ({reason}). Block incoming "
        "connections to these ports with a firewall, or use Linux 5.7 or newer; in a "
        "container, add the capability SYS_PTRACE."
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _suspend_listen() -> int:
    """Installs the filter in this thread; returns its notification descriptor."""
    if platform.machine() not in _NUMBERS:
        raise OSError(errno.ENOSYS, f"not known for {platform.machine()}")
    architecture, seccomp, listen = _NUMBERS[platform.machine()]
    steps = (
        (_LOAD, 0, 0, 4),  # seccomp_data.arch
        (_JUMP_IF_EQUAL, 0, 3, architecture),
        (_LOAD, 0, 0, 0),  # seccomp_data.nr
        (_JUMP_IF_EQUAL, 0, 1, listen),
        (_RETURN, 0, 0, _RET_USER_NOTIF),
        (_RETURN, 0, 0, _RET_ALLOW),
    )
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    kept = ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(kept))
    arguments = (_SECCOMP_SET_MODE_FILTER, _FILTER_FLAGS, program)
    try:
        return _system_call("seccomp", seccomp, *arguments)
    except PermissionError:  # needs root or PR_SET_NO_NEW_PRIVS
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        return _system_call("seccomp", seccomp, *arguments)


def _restrict(thread: int, descriptor: int) -> None:
    """Binds a TCP socket of another process to `lo` unless it has a named address."""
    process = os.pidfd_open(_process_of(thread))
    try:
        copy = _system_call("pidfd_getfd", _PIDFD_GETFD, process, descriptor, 0)
    finally:
        os.close(process)
    with socket.socket(fileno=copy) as listening:
        if listening.family not in _FAMILIES:
            return
        host = ipaddress.ip_address(listening.getsockname()[0].partition("%")[0])
        if (getattr(host, "ipv4_mapped", None) or host).is_unspecified:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")


def _process_of(thread: int) -> int:
    try:
        status = Path(f"/proc/{thread}/status").read_text(errors="replace")
    except ProcessLookupError as error:
        raise OSError(errno.ESRCH, str(error)) from None
    return int(re.findall(r"^Tgid:\s*(\d+)", status, re.MULTILINE)[0])


def _system_call(name: str, number: int, *arguments: int | bytes) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    words = [
        each if isinstance(each, bytes) else ctypes.c_long(each) for each in arguments
    ]
    result = libc.syscall(ctypes.c_long(number), *words)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result
