"""Ports of the loopback: a free one, who listens there, whether it is free again."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import Final

import psutil

HOST: Final = "127.0.0.1"
_WAIT: Final = 5.0
"""Seconds for the kernel to give a port back after its last holder is gone."""
_POLL: Final = 0.05
"""Seconds between two tries."""


def free_port() -> int:
    """A port that nobody holds at this moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def listeners(port: int) -> set[int | None]:
    """Process ids that listen on a port, None for processes that are not ours to see."""
    return {
        connection.pid
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
        and connection.laddr
        and connection.laddr.port == port
    }


def hang_up(port: int) -> None:
    """Shut down this process's own connections to a port, whichever thread waits on them."""
    for connection in psutil.Process().net_connections("tcp4"):
        if connection.raddr[1:2] != (port,):  # an empty tuple where there is no other side
            continue
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fd)) as line:
            # The number may belong to another file by now.
            if line.getpeername()[:2] == (HOST, port):
                line.shutdown(socket.SHUT_RDWR)


def wait_until_free(port: int) -> bool:
    """Whether a port can be had again, within some seconds."""
    deadline = time.monotonic() + _WAIT
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            # Connections in TIME_WAIT do not count, a listener does.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL)
