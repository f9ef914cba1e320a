"""A WebSocket over a bare socket, for tests that compare what the server sends byte for byte."""

import socket

TIMEOUT_S = 60
CONTINUED, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
KEY = "dGhlIHNhbXBsZSBub25jZQ=="


def upgrade(port, *more, path="/", method="GET", version="1.1"):
    lines = [f"{method} {path} HTTP/{version}", f"Host: 127.0.0.1:{port}", "Connection: Upgrade",
             "Upgrade: websocket", *more]
    return "\r\n".join([*lines, "", ""]).encode()


def well_formed(port):
    return upgrade(port, "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {KEY}")


def frame(payload, opcode=TEXT, final=True, reserved=0, masked=True, length=None):
    """`length`: what the header claims, in eight bytes."""
    first = opcode | (0x80 if final else 0) | reserved << 4
    if length is not None:
        size = bytes([127]) + length.to_bytes(8, "big")
    elif len(payload) < 126:
        size = bytes([len(payload)])
    elif len(payload) < 1 << 16:
        size = bytes([126]) + len(payload).to_bytes(2, "big")
    else:
        size = bytes([127]) + len(payload).to_bytes(8, "big")
    mask = bytes(4) if masked else b""  # which leaves the payload as it is
    return bytes([first, size[0] | (0x80 if masked else 0)]) + size[1:] + mask + payload


class Wire:
    """with Wire(port) as w: w.send(frame(b"...")); opcode, payload = w.read()"""

    def __init__(self, port, opens=True):
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.come = b""
        if opens:
            self.send(well_formed(port))
            answer, _, self.come = self.until(b"\r\n\r\n").partition(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 101"), answer

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        """The server may be gone already; what it said before can be read still."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def half_close(self):
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def more(self):
        """False where the server has closed."""
        try:
            data = self.socket.recv(1 << 16)
        except ConnectionResetError:
            data = b""
        self.come += data
        return bool(data)

    def until(self, end):
        while end not in self.come and self.more():
            pass
        return self.come

    def rest(self):
        while self.more():
            pass
        return self.come

    def take(self, count):
        while len(self.come) < count and self.more():
            pass
        taken, self.come = self.come[:count], self.come[count:]
        return taken if len(taken) == count else None

    def read(self):
        """The next frame's first byte and payload; nothing where the server has closed."""
        head = self.take(2)
        if head is None:
            return None
        size = head[1]
        if size >= 126:
            wide = self.take(2 if size == 126 else 8)
            size = int.from_bytes(wide, "big")
        return head[0], self.take(size)


def close_frame(code=1000):
    return frame(code.to_bytes(2, "big"), CLOSE)


