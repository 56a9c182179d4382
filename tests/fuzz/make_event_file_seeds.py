"""Makes corpus/event_file and reject/event_file: python3 tests/fuzz/make_event_file_seeds.py. Each input has one idea."""
import pathlib
import struct

here = pathlib.Path(__file__).parent
good, bad = here / "corpus/event_file", here / "reject/event_file"


def crc(data):
    c = 0xFFFFFFFF
    for byte in data:
        c ^= byte
        for _ in range(8):
            c = c >> 1 ^ (0x82F63B78 if c & 1 else 0)
    c ^= 0xFFFFFFFF
    return ((c >> 15 | c << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(event):
    head = struct.pack("<Q", len(event))
    return head + struct.pack("<I", crc(head)) + event + struct.pack("<I", crc(event))


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def of_bytes(field, data):
    return varint(field << 3 | 2) + varint(len(data)) + data


def event(step, summary, late=False):
    parts = [b"\x10" + varint(step), of_bytes(5, summary)]
    return b"\x09" + struct.pack("<d", 1.7e9) + b"".join(reversed(parts) if late else parts)


def value(tag, payload):
    return of_bytes(1, of_bytes(1, tag) + payload)


def simple(tag, number):
    return value(tag, b"\x15" + struct.pack("<f", number))


def tensor(tag, message):
    return value(tag, of_bytes(8, message))


version = record(b"\x09" + struct.pack("<d", 1.7e9) + of_bytes(3, b"brain.Event:2"))
first = record(event(1, simple(b"lm loss", 6.9)))
f32 = struct.pack("<f", 2.5)
f64 = struct.pack("<d", 2.5)
seeds = {
    "ok-version": version,
    "ok-scalars": version + first + record(event(2, simple(b"lm loss", 6.5) + simple(b"grad norm", 0.5))),
    "ok-step-last": version + record(event(3, simple(b"lm loss", 6.1), late=True)),
    "ok-tensor-floats": version + record(event(4, tensor(b"loss", b"\x08\x01" + of_bytes(5, f32)))),
    "ok-tensor-float": version + record(event(4, tensor(b"loss", b"\x08\x01\x2d" + f32))),
    "ok-tensor-double": version + record(event(4, tensor(b"loss", b"\x08\x02" + of_bytes(6, f64)))),
    "ok-tensor-content": version + record(event(4, tensor(b"loss", b"\x08\x01" + of_bytes(4, f32)))),
    "ok-tensor-text": version + record(event(4, tensor(b"args/text_summary", b"\x08\x07" + of_bytes(8, b"x")))),
    "ok-same-step": version + first + record(event(1, simple(b"lm loss", 5.0))),
    "ok-step-negative": version + record(event((1 << 64) - 1, simple(b"lm loss", 5.0))),
    "ok-being-written": version + first[:-3],
    "ok-large": version + struct.pack("<Q", 1 << 20) + struct.pack("<I", crc(struct.pack("<Q", 1 << 20))),
    "ok-empty": b"",
    "ok-table": b"iteration,lm_loss\n1,6.9\n2,6.5\n",
    "ok-table-gaps": b'iteration, "lm loss" ,x\r\n1,,3\r\n2,nan,3\r\n3,6.5\r\n',
}
no_length = bytearray(version + first)
no_length[len(version) + 8] ^= 1
no_sum = bytearray(version + first)
no_sum[-1] ^= 1
wrong = {
    "sum-of-length": bytes(no_length),
    "sum-of-record": bytes(no_sum),
    "varint-endless": record(b"\x10" + b"\xff" * 12),
    "varint-cut": record(b"\x10\x80"),
    "summary-beyond-event": record(b"\x2a\x7fabc"),
    "value-beyond-summary": record(event(1, b"\x0a\x7fx")),
    "tensor-beyond-value": record(event(1, value(b"loss", b"\x42\x7fx"))),
    "field-in-tensor": record(event(1, tensor(b"loss", b"\x09ab"))),
    "wire-type": record(b"\x13\x00"),
    "not-events": b"hello, this is a text and no event file at all",
    "table-no-loss": b"iteration,grad_norm\n1,2\n",
    "table-nul": b"iteration,lm_loss\n1,\x00\n",
}
for folder, files in ((good, seeds), (bad, wrong)):
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
