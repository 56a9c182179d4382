"""Clients of a gateway on this machine, for clients.sh: clients.py WHAT PORT PATH FILE [TOKEN]. Each case ends by its
number of requests, whatever the time; each byte is compared. A line says what was measured; nothing is judged by time.

  active  1000 clients at once, each with 20 ranges of 64 KiB on a connection that it keeps
  tokens  64 clients with wrong tokens, 200 requests each, beside one with TOKEN
  kept    10000 connections that have asked once and are kept, beside one that asks; then each asks again
  silent  2050 connections from four addresses that say nothing, and then half a request, beside one that asks
"""
import asyncio
import random
import resource
import statistics
import sys
import time

RANGE = 65536


async def ask(reader, writer, path, headers=""):
    writer.write(f"GET {path} HTTP/1.1\r\nHost: gw\r\n{headers}\r\n".encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.split("content-length:")[1].split()[0])
    return int(head.split()[1]), await reader.readexactly(length)


async def dial(port, address=None):
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0) if address else None)


class Ranges:
    """What a client that may read gets, request by request, and how long each took."""

    def __init__(self, port, path, data, token):
        self.port, self.path, self.data = port, path, data
        self.token = f"Authorization: Bearer {token}\r\n" if token else ""
        self.seconds = []

    async def read(self, reader, writer, rng):
        at = rng.randrange(max(1, len(self.data) - RANGE))
        want = self.data[at:at + RANGE]
        began = time.monotonic()
        status, body = await ask(reader, writer, self.path, f"{self.token}Range: bytes={at}-{at + len(want) - 1}\r\n")
        self.seconds.append(time.monotonic() - began)
        assert status == 206, f"status {status}"
        assert body == want, f"other bytes at {at}"

    async def client(self, number, requests, address=None):
        rng = random.Random(number)
        reader, writer = await dial(self.port, address)
        for _ in range(requests):
            await self.read(reader, writer, rng)
        writer.close()

    def report(self, what):
        cuts = statistics.quantiles(self.seconds, n=100)
        print(f"measured: {what}: {len(self.seconds)} requests, {statistics.median(self.seconds) * 1e3:.1f} ms in the middle, "
              f"{cuts[98] * 1e3:.1f} ms at 99 %, {max(self.seconds) * 1e3:.1f} ms at most")


async def active(ranges):
    began = time.monotonic()
    await asyncio.gather(*(ranges.client(i, 20) for i in range(1000)))
    ranges.report(f"a thousand clients, {len(ranges.seconds) * RANGE / (time.monotonic() - began) / 1e6:.0f} MB/s")


async def tokens(ranges):
    async def wrong(number):
        reader, writer = await dial(ranges.port)
        for i in range(200):
            status, _ = await ask(reader, writer, ranges.path, f"Authorization: Bearer hf_wrong_{number}_{i}\r\n")
            assert status == 401, f"a wrong token: status {status}"
        writer.close()

    flood = asyncio.gather(*(wrong(i) for i in range(64)))
    while not flood.done():
        await ranges.client(len(ranges.seconds), 20)
    await flood
    ranges.report("one client beside 12800 wrong tokens")


async def kept(ranges):
    held = []
    for i in range(10000):
        held.append(await dial(ranges.port, f"127.0.0.{1 + i % 4}"))
        status, _ = await ask(*held[-1], ranges.path, "Range: bytes=0-0\r\n")
        assert status == 206, f"connection {i}: status {status}"
    await ranges.client(0, 200, "127.0.0.9")
    ranges.report(f"one client beside {len(held)} that are kept")
    for number, (reader, writer) in enumerate(held):
        await ranges.read(reader, writer, random.Random(number))
        writer.close()


async def silent(ranges):
    held = []
    for i in range(2050):
        reader, writer = await dial(ranges.port, f"127.0.0.{1 + i % 4}")
        if i % 2:
            writer.write(b"GET / HTTP/1.1\r\nX")
        held.append(writer)
        if i % 50 == 49:
            reader, writer = await dial(ranges.port, "127.0.0.9")
            status, body = await ask(reader, writer, "/healthz")
            assert (status, body) == (200, b"ok\n"), f"/healthz beside {i} silent ones: {status}"
            writer.close()
    await ranges.client(0, 200, "127.0.0.9")
    ranges.report(f"one client beside {len(held)} that say nothing")


def main():
    what, port, path, file, *token = sys.argv[1:]
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with open(file, "rb") as f:
        ranges = Ranges(int(port), path, f.read(), token[0] if token else "")
    asyncio.run({"active": active, "tokens": tokens, "kept": kept, "silent": silent}[what](ranges))


main()
