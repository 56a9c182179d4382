"""The writers against real files: the same records must give the same bytes."""

import glob
import io
import os
import sys
import zipfile

sys.path.insert(0, os.path.dirname(__file__))
import torch_files as tf  # noqa: E402


class Memory(tf.SparseFile):
    def __init__(self):
        self.file, self.pos = io.BytesIO(), 0


def rewrite(data):
    archive = zipfile.ZipFile(io.BytesIO(data))
    prefix = archive.infolist()[0].filename.split("/")[0]
    records = [(i.filename[len(prefix) + 1:], archive.read(i)) for i in archive.infolist()]
    out = Memory()
    tf.archive(out, prefix, records)
    return out.file.getvalue()


def items(data):
    end = 0
    while end < len(data):
        start, end = end, data.index(b"PK\5\6", end) + 22
        yield data[start:end]


def repickle(item):
    """A tensor's data.pkl, read and written again. None for other objects."""
    data = zipfile.ZipFile(io.BytesIO(item)).read("archive/data.pkl")
    obj = tf.loads(data)
    if not isinstance(obj, tf.rebuild_tensor):
        return None
    (_, storage, _, location, _), _, shape, _, _, _ = obj.args
    dtype = next(d for d, s in tf.STORAGE.items() if s == storage.__name__)
    return tf.tensor_pickle(dtype, shape, location) == data


def main():
    root = os.path.join(os.path.dirname(__file__), "../fixtures/weights")
    count = 0
    for path in sorted(glob.glob(f"{root}/*/iter_*/mp_rank_*/model_optim_rng.pt") + glob.glob(f"{root}/*/iter_*/*.distcp")):
        with open(path, "rb") as f:
            data = f.read()
        for item in items(data):
            assert rewrite(item) == item, f"{path}: an archive comes out differently"
            assert b"archive/" not in item or repickle(item) in (None, True), f"{path}: a tensor is pickled differently"
            count += 1
    print(f"{count} archives of the fixtures come out byte for byte")


main()
