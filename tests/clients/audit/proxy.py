"""A TCP proxy that cuts each connection after a random number of bytes, in requests and responses alike."""

import random
import select
import socket
import struct
import threading

#: Bytes read at once.
CHUNK = 1 << 16
#: SO_LINGER on, 0 seconds: closing resets the connection.
RESET = struct.pack("ii", 1, 0)


class CuttingProxy:
    """Forwards the connections to `url` to a server; each has at most `bytes_max` bytes, both directions together."""

    def __init__(self, address, bytes_max):
        host, port = address.split(":")
        self._server = (host, int(port))
        self._bytes_max = bytes_max
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        #: Connections that were cut.
        self.cuts = 0

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client):
        with client:
            try:
                with socket.create_connection(self._server) as server:
                    self._forward(client, server)
            except OSError:
                # The server was killed, or one side has reset the connection.
                pass

    def _forward(self, client, server):
        left = random.randint(1, self._bytes_max)
        other = {client: server, server: client}
        while left > 0:
            readable, _, _ = select.select(list(other), [], [])
            for one in readable:
                data = one.recv(CHUNK)
                if not data:
                    return
                other[one].sendall(data[:left])
                left -= len(data)
                if left <= 0:
                    break
        with self._lock:
            self.cuts += 1
        for one in (client, server):
            # Some peers get the end of the stream, others a reset.
            if random.random() < 0.5:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
