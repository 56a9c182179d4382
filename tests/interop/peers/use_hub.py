"""What huggingface_hub of this environment reads from HF_ENDPOINT, against the files of a directory.

use_hub.py REPO DIRECTORY REVISION
"""
import filecmp
import os
import pathlib
import subprocess
import sys

import huggingface_hub
from huggingface_hub import HfApi, HfFileSystem, hf_hub_download, snapshot_download
from huggingface_hub.utils import EntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError


def fails(error, call, *arguments, **values):
    try:
        call(*arguments, **values)
    except error:
        return
    raise AssertionError(f"no {error.__name__}")


def files_below(directory):
    return sorted(str(p.relative_to(directory)) for p in pathlib.Path(directory).rglob("*") if p.is_file())


def same_files(found, wanted):
    names = files_below(wanted)
    assert sorted(n for n in files_below(found) if not n.startswith((".cache", ".huggingface"))) == names, files_below(found)
    for name in names:
        assert filecmp.cmp(os.path.join(found, name), os.path.join(wanted, name), shallow=False), name


repo, wanted, revision = sys.argv[1:]
api, names = HfApi(), files_below(wanted)

snapshot = snapshot_download(repo)
same_files(snapshot, wanted)
assert snapshot_download(repo) == snapshot
same_files(snapshot_download(repo, local_dir=f"{os.environ['HF_HOME']}/local"), wanted)
assert os.path.basename(snapshot_download(repo, revision=revision)) == os.path.basename(snapshot)
assert snapshot_download(repo, revision=os.path.basename(snapshot)) == snapshot

info = api.model_info(repo, files_metadata=True)
assert info.sha == os.path.basename(snapshot)
assert {s.rfilename: s.size for s in info.siblings} == {n: os.path.getsize(os.path.join(wanted, n)) for n in names}
assert sorted(api.list_repo_files(repo)) == names
assert [p.path for p in api.get_paths_info(repo, [names[0], "nope"])] == [names[0]]
assert api.file_exists(repo, names[0]) and not api.file_exists(repo, "nope")
assert api.list_repo_refs(repo).branches[0].target_commit == info.sha
assert repo.split("__")[0] in [m.id for m in api.list_models()]

fails(EntryNotFoundError, hf_hub_download, repo, "nope.json")
fails(RevisionNotFoundError, hf_hub_download, repo, names[0], revision="nope")
fails(RepositoryNotFoundError, hf_hub_download, repo + "x", names[0])

fs = HfFileSystem()
assert sorted(fs.find(repo)) == [f"{repo}/{n}" for n in names]
for name in names:
    whole = pathlib.Path(wanted, name).read_bytes()
    with fs.open(f"{repo}/{name}", "rb", block_size=4096) as f:
        f.seek(len(whole) // 3)
        assert f.read(10_000) == whole[len(whole) // 3:][:10_000], name

# The program of people who write no Python: hf, or what it was called before.
programs = [pathlib.Path(sys.executable).parent / name for name in ("hf", "huggingface-cli")]
program = next(p for p in programs if p.exists())
local = f"{os.environ['HF_HOME']}/by the program"
subprocess.run([program, "download", repo, "--revision", revision, "--local-dir", local], check=True, stdout=subprocess.DEVNULL)
same_files(local, wanted)
print(huggingface_hub.__version__, program.name)
