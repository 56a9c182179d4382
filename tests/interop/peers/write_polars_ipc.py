"""write_polars_ipc.py DIR: Arrow files and streams as Polars writes them, and DIR/cases.json, their rows by their names."""
import json
import sys

import polars as pl

PLACE = sys.argv[1]
ROWS = [None if i % 7 == 5 else [i * 3 + k for k in range(i % 6)] for i in range(60)]
CASES = {}


def frame(dtype):
    """The tokens between columns with dictionaries and views."""
    words = [None if i % 3 == 1 else "word " * (i % 5) for i in range(60)]
    return pl.DataFrame({"text": words, "kind": pl.Series([str(i % 4) for i in range(60)], dtype=pl.Categorical),
                         "input_ids": pl.Series(ROWS, dtype=pl.List(dtype)), "more": [{"a": [i], "b": None} for i in range(60)]})


def case(name, write, *arguments, rows=ROWS, **options):
    write(f"{PLACE}/{name}.arrow", *arguments, **options)
    CASES[name] = [row or [] for row in rows]


def main():
    for name, dtype in (("uint16", pl.UInt16), ("int32", pl.Int32), ("int64", pl.Int64)):
        data = frame(dtype)
        for level in ("oldest", "newest"):
            options = {"compat_level": getattr(pl.CompatLevel, level)(), "compression": "uncompressed"}
            case(f"{name}-{level}-file", data.write_ipc, **options)
            case(f"{name}-{level}-stream", data.write_ipc_stream, **options)
        case(f"{name}-batches", data.write_ipc, record_batch_size=7)
        case(f"{name}-slice", data[5:33].write_ipc, rows=ROWS[5:33])
    case("lazy", frame(pl.Int32).lazy().sink_ipc)
    case("empty", frame(pl.Int32)[:0].write_ipc, rows=[])
    fixed = [[i, i + 1] for i in range(20)]
    case("fixed", pl.DataFrame({"input_ids": pl.Series(fixed, dtype=pl.Array(pl.Int32, 2))}).write_ipc, rows=fixed)
    frame(pl.Int32).write_ipc(f"{PLACE}/compressed.arrow", compression="lz4")
    with open(f"{PLACE}/cases.json", "w") as f:
        json.dump(CASES, f)


if __name__ == "__main__":
    main()
