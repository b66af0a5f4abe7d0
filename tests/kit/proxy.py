"""A network that can be broken: a TCP proxy of the loopback address, which is blocked and opened."""

import selectors
import socket
import threading
from collections import deque
from contextlib import suppress

_READ_BYTES = 1 << 16
_LOOK_AGAIN_S = 0.02


class Proxy:
    """Forwards connections from `url` to `ports`, in turn, until it is blocked. Runs in a thread."""

    def __init__(self, *ports: int) -> None:
        self._ports = deque(ports)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._at: tuple[str, int] = free.getsockname()
        self.url = f"http://127.0.0.1:{self._at[1]}"
        self._selector = selectors.DefaultSelector()
        self._ends: dict[socket.socket, socket.socket] = {}
        self._listener: socket.socket | None = None
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self.open()
        # A daemon: a test that is skipped before it could close it must not keep the run from ending.
        self._thread = threading.Thread(target=self._run, name=f"proxy of {ports}", daemon=True)
        self._thread.start()

    def open(self) -> None:
        """Let connections through."""
        with self._lock:
            if self._listener is None:
                listener = socket.socket()
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(self._at)
                listener.listen()
                self._listener = listener
                self._selector.register(listener, selectors.EVENT_READ)

    def block(self) -> None:
        """Break the connections that there are, in the middle of what they say, and refuse new ones."""
        with self._lock:
            if self._listener is not None:
                self._selector.unregister(self._listener)
                self._listener.close()
                self._listener = None
            for end in [*self._ends]:
                self._break(end)

    def close(self) -> None:
        self._closing.set()
        self._thread.join()
        self.block()
        self._selector.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            for key, _ in self._selector.select(_LOOK_AGAIN_S):
                with self._lock:
                    assert isinstance(key.fileobj, socket.socket)
                    self._serve(key.fileobj)

    def _serve(self, ready: socket.socket) -> None:
        if ready is self._listener:
            self._connect(ready)
        elif ready in self._ends:
            try:
                data = ready.recv(_READ_BYTES)
                self._ends[ready].sendall(data)
            except OSError:
                data = b""
            if not data:
                self._break(ready)

    def _connect(self, listener: socket.socket) -> None:
        one, _ = listener.accept()
        other = self._connected()
        if other is None:
            one.close()
            return
        self._ends |= {one: other, other: one}
        for end in (one, other):
            self._selector.register(end, selectors.EVENT_READ)

    def _connected(self) -> socket.socket | None:
        """A connection to the next port, or to one after it where nobody listens."""
        for _ in range(len(self._ports)):
            self._ports.rotate(-1)
            with suppress(OSError):
                return socket.create_connection(("127.0.0.1", self._ports[0]))
        return None

    def _break(self, end: socket.socket) -> None:
        for each in (end, self._ends.get(end, end)):
            if self._ends.pop(each, None) is not None:
                with suppress(OSError):
                    self._selector.unregister(each)
                each.close()
