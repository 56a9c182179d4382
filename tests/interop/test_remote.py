"""s3:// as SOURCE, against moto, where every request is signed as botocore signs it, and against hadro, which looks itself."""
import contextlib
import filecmp
import os
import shutil
import socket
import subprocess
import time
import urllib.request

import pytest

import program
import venvs

SOURCE = f"{os.environ['MCOREFS_FIXTURES']}/weights/llama-torch_dist-tp2-pp2-vpp2"
KEY = "runs/a b+c&d=é"  # each of these is encoded in another way
URL = f"s3://ckpts/{KEY}"


@pytest.fixture(scope="module")
def endpoint():
    try:
        python = venvs.python("s3", "moto and boto3")
    except venvs.Missing as why:
        pytest.skip(str(why))
    peer = subprocess.Popen([python, "peers/s3_server.py", SOURCE, KEY, "TOKEN"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            text=True)
    try:
        yield f"http://127.0.0.1:{int(peer.stdout.readline())}"
    finally:
        peer.stdin.close()
        peer.wait(program.SECONDS)


@pytest.fixture(autouse=True)
def clean(monkeypatch, endpoint, tmp_path):
    for name in [n for n in os.environ if n.startswith("AWS_")] + ["http_proxy", "HTTP_PROXY"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def read(tmp_path):
    """The checkpoint as it comes over S3: the bytes of the local one."""
    done = program.run("export", URL, "hf", tmp_path / "remote", "-o", f"cache={tmp_path}/cache")
    assert done.returncode == 0, done.stderr
    assert program.run("export", SOURCE, "hf", tmp_path / "local").returncode == 0
    names = sorted(p.name for p in (tmp_path / "local").iterdir())
    assert names == sorted(p.name for p in (tmp_path / "remote").iterdir())
    assert filecmp.cmpfiles(tmp_path / "local", tmp_path / "remote", names, shallow=False)[0] == names


def test_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret of AKID")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    read(tmp_path)


def test_credentials_file(tmp_path, monkeypatch):
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text("[default]\naws_access_key_id = NO\naws_secret_access_key = wrong\n"
                                               "[training]\naws_access_key_id=TRAIN\naws_secret_access_key = secret of TRAIN\n")
    monkeypatch.setenv("AWS_PROFILE", "training")
    read(tmp_path)


def test_role_of_the_machine(tmp_path, monkeypatch, endpoint):
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", endpoint)
    read(tmp_path)


def test_wrong_secret(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    done = program.run("ls", URL, "-o", f"cache={tmp_path}/cache")
    assert done.returncode == 1 and "403 (access denied)" in done.stderr


def test_nobody(tmp_path):
    done = program.run("ls", URL, "-o", f"cache={tmp_path}/cache")
    assert done.returncode == 1 and "403 (access denied; no keys were found, so nothing was signed)" in done.stderr


def test_mount(tmp_path, monkeypatch):
    if not program.can_mount():
        pytest.skip("/dev/fuse cannot be used here")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret of AKID")
    assert program.run("export", SOURCE, "raw", tmp_path / "local").returncode == 0
    with program.mounted(URL, cache=tmp_path / "cache") as point:
        for file in (tmp_path / "local").iterdir():
            assert (point / "latest/raw" / file.name).read_bytes() == file.read_bytes(), file.name


# ---- a server that looks at signatures itself ----

HADRO_KEYS = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "secret of AKID", "AWS_REGION": "eu-west-2"}


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    """A directory of hadro's with the checkpoint, behind more keys than one page of a listing has."""
    data = tmp_path_factory.mktemp("hadro")
    shutil.copytree(SOURCE, data / "ckpts" / KEY)
    (data / "ckpts" / KEY / "aaa").mkdir()
    for i in range(2100):
        (data / "ckpts" / KEY / f"aaa/{i:04}").touch()
    return data


@contextlib.contextmanager
def hadro(data, log, *arguments):
    try:
        python = venvs.python("hadro", "hadro")
    except venvs.Missing as why:
        pytest.skip(str(why))
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with open(log, "w") as out:
        peer = subprocess.Popen([python, "-m", "hadro", data, "--port", str(port), "--access-key", "AKID", "--secret-key", "secret of AKID",
                                 *arguments], stdout=out, stderr=out)
    try:
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health")
                break
            except OSError:
                assert peer.poll() is None, log.read_text()
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        peer.terminate()
        peer.wait(program.SECONDS)


def use_keys(monkeypatch, address, **other):
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    for name, value in {**HADRO_KEYS, **other}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("faults", [(), ("--error-rate", "0.1", "--fault-seed", "7", "--latency-ms", "5")], ids=["plain", "503"])
def test_hadro(bucket, tmp_path, monkeypatch, faults):
    """The bytes, through an export and through a mount; three pages of names; and where one request of ten fails."""
    with hadro(bucket, tmp_path / "log", *faults) as address:
        use_keys(monkeypatch, address)
        read(tmp_path)
        if program.can_mount():
            with program.mounted(URL, cache=tmp_path / "another cache") as point:
                for file in (tmp_path / "local").iterdir():
                    assert (point / "latest/hf" / file.name).read_bytes() == file.read_bytes(), file.name
    said = (tmp_path / "log").read_text()
    assert said.count("continuation-token=") >= 2 and (" 503" in said) == bool(faults), said[-2000:]


WRONG = {"secret": ({"AWS_SECRET_ACCESS_KEY": "another"}, "403 (access denied: SignatureDoesNotMatch)"),
         "name": ({"AWS_ACCESS_KEY_ID": "NOBODY"}, "403 (access denied: InvalidAccessKeyId)"),
         "none": ({"AWS_ACCESS_KEY_ID": ""}, "403 (access denied: AccessDenied; no keys were found, so nothing was signed)")}


@pytest.mark.parametrize("name", WRONG)
def test_hadro_refuses(bucket, tmp_path, monkeypatch, name):
    keys, sentence = WRONG[name]
    with hadro(bucket, tmp_path / "log") as address:
        use_keys(monkeypatch, address, **keys)
        done = program.run("ls", URL, "-o", f"cache={tmp_path}/cache")
        assert done.returncode == 1 and sentence in done.stderr, done.stderr


def test_hadro_has_no_such_bucket(bucket, tmp_path, monkeypatch):
    with hadro(bucket, tmp_path / "log") as address:
        use_keys(monkeypatch, address)
        done = program.run("ls", "s3://nowhere/x", "-o", f"cache={tmp_path}/cache")
        assert done.returncode == 1 and "404 (not found: NoSuchBucket)" in done.stderr, done.stderr
