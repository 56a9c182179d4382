"""make_parquet_seeds.py: tests/fuzz/{corpus,reject}/parquet, with pyarrow (tests/interop/run.sh makes a venv that has it)."""
import pathlib

import pyarrow
import pyarrow.parquet as parquet

here = pathlib.Path(__file__).parent
good, bad = here / "corpus/parquet", here / "reject/parquet"
table = pyarrow.table({"id": [1, 2, 3, 4], "meta": [{"a": [1]}, None, {"a": []}, {"a": None}], "text": ["a tale", None, "\u65e5\u672c\n\"", "a tale"],
                       "w": ["one", "", "one", "x" * 40]})
for name, more in {"snappy-dictionary": {"compression": "snappy"}, "plain": {"compression": "none", "use_dictionary": False},
                   "zstd-second-version": {"compression": "zstd", "data_page_version": "2.0"},
                   "gzip-lengths": {"compression": "gzip", "use_dictionary": False, "column_encoding": dict.fromkeys(("text", "w"), "DELTA_LENGTH_BYTE_ARRAY")},
                   "groups": {"compression": "none", "row_group_size": 2, "write_statistics": False}}.items():
    if "column_encoding" in more:
        more["column_encoding"] = {**more["column_encoding"]}
        parquet.write_table(table.select(["text", "w"]), good / f"ok-{name}", **more)
    else:
        parquet.write_table(table, good / f"ok-{name}", **more)
parquet.write_table(table, bad / "brotli", compression="brotli")
parquet.write_table(table.select(["text", "id"]), bad / "no-column")
parquet.write_table(table.select(["text"]).append_column("w", pyarrow.array([1, 2, 3, 4])), bad / "numbers")
parquet.write_table(table.select(["text"]).append_column("w", pyarrow.array([["a"], [], None, ["b"]])), bad / "lists")
parquet.write_table(table.select(["text", "w"]), bad / "delta", use_dictionary=False, column_encoding=dict.fromkeys(("text", "w"), "DELTA_BYTE_ARRAY"))
whole = (good / "ok-plain").read_bytes()
(bad / "cut").write_bytes(whole[:-1])
(bad / "short").write_bytes(b"PAR1")
(bad / "encrypted").write_bytes(whole[:-4] + b"PARE")
(bad / "footer-too-long").write_bytes(whole[:-8] + b"\xff\xff\xff\x7fPAR1")
(bad / "length-outside").write_bytes(whole.replace(b"\x06\x00\x00\x00a tale", b"\x06\x00\x00\x01a tale", 1))
(bad / "no-footer").write_bytes(b"PAR1" + b"\0" * 20 + b"\x10\0\0\0PAR1")
