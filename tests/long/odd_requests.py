"""Requests that are odd, in pipelines, to a gateway on this machine: odd_requests.py PORT COUNT PATH [SEED]

COUNT requests (about) on connections that are kept for 16 of them. PATH is a file's, without a slash in front. Each
connection ends with one that closes it: too much of something, a NUL, a body that does not come. Prints how many
replies came.
"""
import random
import socket
import sys
import threading

KEPT = 16
THREADS = 6
HOST = " HTTP/1.1\r\nHost: gw\r\n"


def kept(path):
    """Requests that leave the connection open."""
    return [
        f"GET /healthz{HOST}\r\n", f"HEAD /{path}{HOST}\r\n", f"GET /{path}{HOST}Range: bytes=1-9\r\n\r\n",
        f"GET /{path}{HOST}If-None-Match: \"x\", W/\"y\"\r\nRange: bytes=9-1\r\n\r\n",
        f"GET /no/such/resolve/main/x{HOST}\r\n", f"GET /api/models{HOST}Authorization: Bearer wrong\r\n\r\n",
        f"GET /api/models?limit=-1{HOST}\r\n", f"GET http://x/healthz{HOST}\r\n",
        f"GET /{path}{HOST}{'X: y' * 900}\r\n\r\n", f"GET /{path}{HOST}Cookie: {'a=b; ' * 30}\r\n\r\n",
        f"POST /api/models/lab/x/paths-info/main{HOST}Content-Length: 12\r\n\r\npaths=config", f"\r\nGET /healthz{HOST}\r\n",
        f"POST /api/models/lab/x/paths-info/main{HOST}Transfer-Encoding: chunked\r\n\r\n7\r\npaths=a\r\n0\r\n\r\n",
        f"GET /{path}?expires=1&signature=2{HOST}\r\n", f"GET /files/lab/x/main/{HOST}\r\n", f"GET /lab/x/auth-check{HOST}\r\n",
    ]


def last(path):
    """Requests that end it, one way or another."""
    return [
        f"GET /healthz?{'a=b&' * 3000}{HOST}\r\n", f"GET /healthz?{'a&' * 6000}{HOST}\r\n", f"GET /{'a' * 20000}{HOST}\r\n",
        f"GET /{path}{HOST}Cookie: {'a=b; ' * 2500}\r\n\r\n", f"GET /{path}{HOST}Cookie: {'a;' * 6000}\r\n\r\n",
        f"GET /{path}{HOST}" + "a:\r\n" * 2500 + "\r\n", f"GET /{path}{HOST}no colon\r\n\r\n",
        f"GET /healthz\0x{HOST}\r\n", f"GET /{path}{HOST}A: b\0c\r\n\r\n", f"GET /{path}{HOST}A: b\r\n c\r\n\r\n",
        f"GET /{path}{HOST}Content-Length: 4abc\r\n\r\n", f"POST /{path}{HOST}Content-Length: 99999999999999999999\r\n\r\n",
        f"POST /{path}{HOST}Content-Length: 10\r\nTransfer-Encoding: chunked\r\n\r\n",
        f"POST /{path}{HOST}Transfer-Encoding: gzip\r\n\r\n", f"POST /{path}{HOST}Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        f"POST /{path}{HOST}Expect: x\r\n\r\n", f"DELETE /{path}{HOST}Content-Length: 9\r\n\r\n", f"GET /{path} HTTP/1.1\r\n\r\n",
        f"GET /{path} HTTP/3.0\r\nHost: x\r\n\r\n", f"GET /{path}?{'a=b&' * 200}{HOST}\r\n",
        f"GET /%zz{HOST}\r\n", f"GET /a/../b{HOST}\r\n", f"GET /{'a/' * 100}{HOST}\r\n",
    ]


def left(path):
    """What the client leaves behind when it goes."""
    return [f"GET /{path} HTTP/1.1\r\nHost: gw\r\nX", f"GET /{path}?a", f"POST /{path}{HOST}Content-Length: 1000\r\n\r\nabc",
            "\0\r\n\r\n", "GET\r\n\r\n", "", f"GET /{path}{HOST}\r\n"]


class Clients:
    def __init__(self, port, count, path, seed):
        self.port, self.seed = port, seed
        self.kept, self.last, self.left = ([r.encode("latin-1") for r in make(path)] for make in (kept, last, left))
        self.more, self.replies, self.lock = count // (KEPT + 1), 0, threading.Lock()

    def batch(self, rng):
        """Bytes, and whether the gateway ends the connection."""
        ends = rng.random() < 0.8
        return b"".join(rng.choices(self.kept, k=KEPT)) + rng.choice(self.last if ends else self.left), ends

    def connection(self, batch, ends):
        with socket.create_connection(("127.0.0.1", self.port)) as s:
            s.settimeout(300)
            replies, tail = 0, b""
            try:
                s.sendall(batch)
                while (ends or replies < KEPT) and (got := s.recv(1 << 18)):
                    replies += (tail + got).count(b"HTTP/1.1 ")
                    tail = got[-8:]
            except (ConnectionResetError, BrokenPipeError):  # it has not read all that was sent
                pass
        return replies

    def run(self, number):
        rng = random.Random(self.seed * 1000 + number)
        batches = [self.batch(rng) for _ in range(40)]
        while True:
            with self.lock:
                if self.more <= 0:
                    return
                self.more -= 1
            replies = self.connection(*rng.choice(batches))
            with self.lock:
                self.replies += replies


def main(port, count, path, seed="1"):
    clients = Clients(int(port), int(count), path, int(seed))
    threads = [threading.Thread(target=clients.run, args=(i,)) for i in range(THREADS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    print(f"{clients.replies} replies")


main(*sys.argv[1:])
