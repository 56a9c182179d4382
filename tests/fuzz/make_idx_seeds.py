"""Makes corpus/idx and reject/idx: python3 tests/fuzz/make_idx_seeds.py. An input is the size of the .bin, then the .idx.

Seeds called ok-* must be accepted. Each input under reject/ breaks one rule, which its name says.
"""

import os
import struct

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = f"{HERE}/../fixtures/data"
SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 8, 7: 4, 8: 2}
LENGTHS = [3, 0, 5, 1, 2]


def save(kind, name, data):
    os.makedirs(f"{HERE}/{kind}/idx", exist_ok=True)
    with open(f"{HERE}/{kind}/idx/{name}", "wb") as f:
        f.write(data)


def idx(lengths=LENGTHS, code=8, pointers=None, documents=None, modes=None, bin_size=None, n=None, d=None, magic=b"MMIDIDX\0\0", version=1):
    size = SIZES.get(code, 4)
    if pointers is None:
        pointers = [size * sum(lengths[:i]) for i in range(len(lengths))]
    if documents is None:
        documents = list(range(len(lengths) + 1))
    out = struct.pack("<Q", size * max(sum(lengths), 0) if bin_size is None else bin_size) + magic
    out += struct.pack("<QBQQ", version, code, len(lengths) if n is None else n, len(documents) if d is None else d)
    out += struct.pack(f"<{len(lengths)}i{len(pointers)}q{len(documents)}q", *lengths, *pointers, *documents)
    return out + (struct.pack(f"<{len(modes)}b", *modes) if modes else b"")


def wrap32(v):
    return (v + 2**31) % 2**32 - 2**31


def main():
    good = idx()
    for code in SIZES:
        save("corpus", f"ok-dtype-{code}", idx(code=code))
    save("corpus", "ok-empty", idx([]))
    save("corpus", "ok-only-empty-sequences", idx([0, 0, 0]))
    save("corpus", "ok-documents-without-sequences", idx(documents=[0, 0, 2, 2, 5, 5]))
    save("corpus", "ok-multimodal", idx(modes=[0, 1, 0, 1, 0]))
    save("corpus", "ok-bin-with-a-tail", idx(bin_size=100))
    long = [200_000_000] * 12 + [5]
    save("corpus", "ok-overflowed-pointers", idx(long, code=4, pointers=[wrap32(4 * sum(long[:i])) for i in range(len(long))]))
    many = [i % 7 for i in range(700)]
    shifted = [8 + 2 * sum(many[:i]) for i in range(700)]
    save("corpus", "ok-many-repaired", idx(many, pointers=shifted))
    save("corpus", "in-another-order", idx([3, 2, 5], pointers=[4, 0, 10]))  # taken as it is: not back to back
    for name in ("notes", "tales"):
        with open(f"{DATA}/{name}_text_document.idx", "rb") as f:
            save("corpus", f"ok-{name}", struct.pack("<Q", os.path.getsize(f"{DATA}/{name}_text_document.bin")) + f.read())

    save("reject", "nothing", b"")
    save("reject", "shorter-than-a-header", good[:8 + 33])
    save("reject", "wrong-magic", idx(magic=b"MMIDIDX\0\1"))
    save("reject", "magic-of-eight-bytes", idx(magic=b"MMIDIDX\0"))
    save("reject", "tntidx", idx(magic=b"TNTIDX\0\0\1"))
    save("reject", "version-2", idx(version=2))
    save("reject", "dtype-0", idx(code=0))
    save("reject", "dtype-9", idx(code=9))
    save("reject", "cut-in-lengths", good[:8 + 34 + 7])
    save("reject", "cut-in-documents", good[:-1])
    save("reject", "trailing-byte", good + b"\0")
    save("reject", "half-of-the-modes", idx(modes=[0, 1]))
    save("reject", "more-sequences-than-room", idx(n=6))
    save("reject", "sequences-wrap", idx(n=2**62))
    save("reject", "sizes-wrap-together", idx(n=(2**64 - 34) // 12))
    save("reject", "documents-wrap", idx(d=2**61 + 6))
    save("reject", "no-document-entry", idx([], documents=[]))
    save("reject", "documents-do-not-begin-with-0", idx(documents=[1, 5]))
    save("reject", "documents-end-early", idx(documents=[0, 4]))
    save("reject", "documents-end-behind", idx(documents=[0, 6]))
    save("reject", "documents-descend", idx(documents=[0, 3, 2, 5]))
    save("reject", "document-negative", idx(documents=[0, -1, 5]))
    save("reject", "negative-length", idx([3, -1, 5, 1, 2], bin_size=20))
    save("reject", "negative-last-length", idx([3, 1, -2**31], bin_size=20))
    save("reject", "negative-pointer", idx(pointers=[0, 6, -6, 16, 18], bin_size=23))
    save("reject", "pointer-behind-the-bin", idx(pointers=[0, 6, 6, 16, 2**62], bin_size=23))
    save("reject", "pointer-ends-beyond-2-63", idx(pointers=[0, 6, 6, 16, 2**63 - 1], bin_size=23))
    save("reject", "sequences-overlap", idx(pointers=[0, 6, 4, 14, 16], bin_size=20))
    save("reject", "hole-between", idx(pointers=[0, 6, 8, 18, 20], bin_size=24))
    save("reject", "short-bin", idx(bin_size=21))


main()
