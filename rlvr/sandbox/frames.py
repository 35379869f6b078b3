"""Messages over the sandbox's sockets: JSON objects, each behind its length. Runs on both sides of the border.

Whoever reads from a program gives a limit, and takes what comes for foreign input.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

_HEADER = struct.Struct(">I")
#: Nothing that an owner sends is larger.
MAX_BYTES = 64 * 2**20


def pack(message: dict[str, Any]) -> bytes:
    """One frame."""
    body = json.dumps(message, separators=(",", ":")).encode("ascii")
    return _HEADER.pack(len(body)) + body


def send(channel: socket.socket, message: dict[str, Any]) -> None:
    """Send a message; blocks until it is taken."""
    channel.sendall(pack(message))


def receive(channel: socket.socket, limit: int = MAX_BYTES) -> dict[str, Any]:
    """The next message. Raises EOFError at the end, ValueError on what is no message, TimeoutError as the socket's."""
    (length,) = _HEADER.unpack(_exactly(channel, _HEADER.size))
    if length > limit:
        raise ValueError(f"a message of {length} bytes, over the limit of {limit}")
    try:
        message = json.loads(_exactly(channel, length))
    except RecursionError:
        raise ValueError("a message nested too deeply") from None
    if type(message) is not dict:
        raise ValueError("a message that is no object")
    return message


def _exactly(channel: socket.socket, length: int) -> bytes:
    data = channel.recv(length)
    if len(data) == length:
        return data
    chunks = [data]
    missing = length - len(data)
    while missing:
        if not chunks[-1]:
            raise EOFError("the other end is closed")
        chunks.append(channel.recv(min(missing, 2**20)))
        missing -= len(chunks[-1])
    return b"".join(chunks)
