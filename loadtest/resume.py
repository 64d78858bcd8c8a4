#!/usr/bin/env python3
"""Resumes finished streams over and over, and counts what comes.

oha cannot do this: it sends the same head on every connection, and two connections that resume one
stream take it from each other, as they should. Here each connection has streams of its own.

Reads from stdin a JSON object: host, port, path, connections, repeats, and streams, each with its
session, cursor and payload (bytes of event stream that the resume has to bring). Every stream is
resumed `repeats` times. Any answer that is not 200, ends early or brings other than `payload` bytes
is an error. Prints one JSON object.
"""

import json
import selectors
import socket
import sys
import time

# Bytes of one read: a few of the server's writes.
READ_BYTES = 256 * 1024
# A connection that is silent for so long is broken, seconds.
PATIENCE = 30


class Chunks:
    """Counts the payload of one chunked body, however its bytes are split."""

    def __init__(self):
        self.payload = 0
        self.done = False
        self.left = 0  # bytes of the current chunk, with its CR LF, that are still to come
        self.line = b""  # the part of a size line that has come

    def feed(self, data):
        at = 0
        while at < len(data) and not self.done:
            if self.left:
                taken = min(self.left, len(data) - at)
                self.left -= taken
                at += taken
                continue
            end = data.find(b"\n", at)
            if end < 0:
                self.line += data[at:]
                return
            size = int((self.line + data[at:end]).strip() or b"0", 16)
            self.line = b""
            at = end + 1
            self.payload += size
            self.left = size + 2
            self.done = size == 0


class Connection:
    def __init__(self, plan, streams):
        self.plan = plan
        self.queue = streams * plan["repeats"]
        self.socket = socket.create_connection((plan["host"], plan["port"]), PATIENCE)
        self.times = []
        self.ask()

    def ask(self):
        self.stream = self.queue.pop()
        plan = self.plan
        self.head = b""
        self.body = None
        self.started = time.perf_counter()
        self.socket.sendall(
            f"GET {plan['path']} HTTP/1.1\r\nHost: {plan['host']}:{plan['port']}\r\n"
            f"Accept: text/event-stream\r\nMcp-Session-Id: {self.stream['session']}\r\n"
            f"Last-Event-ID: {self.stream['cursor']}\r\n\r\n".encode()
        )

    def handle_readable(self, buffer):
        """Takes what has come; false once there is nothing more to ask."""
        read = self.socket.recv_into(buffer)
        if read == 0:
            raise OSError("the server closed the connection in the middle")
        data = bytes(memoryview(buffer)[:read])
        if self.body is None:
            self.head += data
            end = self.head.find(b"\r\n\r\n")
            if end < 0:
                return True
            if not self.head.startswith(b"HTTP/1.1 200 "):
                raise OSError(f"answered {self.head[:400]!r}")
            self.body = Chunks()
            data = self.head[end + 4 :]
        self.body.feed(data)
        if not self.body.done:
            return True
        self.times.append(time.perf_counter() - self.started)
        if self.body.payload != self.stream["payload"]:
            raise OSError(f"{self.body.payload} bytes instead of {self.stream['payload']}")
        if not self.queue:
            return False
        self.ask()
        return True


def main():
    plan = json.load(sys.stdin)
    count = plan["connections"]
    buffer = bytearray(READ_BYTES)
    selector = selectors.DefaultSelector()
    started = time.perf_counter()
    connections = [Connection(plan, plan["streams"][i::count]) for i in range(count)]
    for connection in connections:
        selector.register(connection.socket, selectors.EVENT_READ, connection)
    while selector.get_map():
        ready = selector.select(PATIENCE)
        if not ready:
            raise OSError(f"nothing came for {PATIENCE} s")
        for key, _ in ready:
            if not key.data.handle_readable(buffer):
                selector.unregister(key.fileobj)
    seconds = time.perf_counter() - started
    times = sorted(time for connection in connections for time in connection.times)
    json.dump(
        {
            "requests": len(times),
            "seconds": seconds,
            "p50": times[len(times) // 2],
            "p99": times[min(len(times) - 1, len(times) * 99 // 100)],
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
