"""configs/kubernetes against the API's own schemas, configs/container/compose.yaml against compose's specification, and
what both start: each command line is one that the program takes, each probe a path or a command that answers."""
import json
import pathlib
import re
import socket
import subprocess
import time
import urllib.request

import pytest

import program
import venvs

CONFIGS = pathlib.Path(__file__).parents[2] / "configs"
CHECK = """
import json, sys, yaml, kubernetes_validate as k
bad = 0
for path in sys.argv[1:]:
    for document in yaml.safe_load_all(open(path)):
        try:
            k.validate(document, "1.29", strict=True)
        except k.ValidationError as e:
            print(path, document["kind"], e.message)
            bad = 1
sys.exit(bad)
"""
LOAD = "import json, sys, yaml; print(json.dumps([d for p in sys.argv[1:] for d in yaml.safe_load_all(open(p))]))"
COMPOSE = "import sys, compose_spec; print(sorted(compose_spec.PyCompose.from_yaml(open(sys.argv[1]).read()).service_names()))"


@pytest.fixture(scope="module")
def python():
    try:
        return venvs.python("schemas", "kubernetes-validate")
    except venvs.Missing as why:
        pytest.skip(str(why))


def run(python, code, *paths):
    return subprocess.run([python, "-c", code, *map(str, paths)], capture_output=True, text=True, timeout=120)


def manifests():
    return sorted((CONFIGS / "kubernetes").glob("*.yaml"))


def test_kubernetes_takes_the_manifests(python):
    done = run(python, CHECK, *manifests())
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("wrong", [("replicas: 2", "replicas: two"), ("periodSeconds: 5", "periodSecond: 5")])
def test_kubernetes_refuses_a_wrong_one(python, tmp_path, wrong):
    text = (CONFIGS / "kubernetes" / "gateway.yaml").read_text()
    assert wrong[0] in text
    (tmp_path / "wrong.yaml").write_text(text.replace(*wrong, 1))
    assert run(python, CHECK, tmp_path / "wrong.yaml").returncode == 1


def test_compose_takes_its_file(python, tmp_path):
    done = run(python, COMPOSE, CONFIGS / "container" / "compose.yaml")
    assert done.stdout == "['gateway', 'mount']\n", done.stderr
    text = (CONFIGS / "container" / "compose.yaml").read_text()
    (tmp_path / "compose.yaml").write_text(text.replace("restart: unless-stopped", "restart: sometimes", 1))
    assert run(python, COMPOSE, tmp_path / "compose.yaml").returncode != 0


def containers(documents):
    for document in documents:
        spec = document["spec"].get("template", document)["spec"] if document["kind"] != "Service" else {}
        yield from spec.get("initContainers", []) + spec.get("containers", [])


def test_what_they_mount_is_what_the_program_takes(python):
    documents = json.loads(run(python, LOAD, *manifests()).stdout)
    lines = [" ".join(c.get("command", []) + c.get("args", [])) for c in containers(documents)]
    mounts = [re.search(r"-f (\S+) (\S+) -o (\S+)", line) for line in lines if " -o " in line]
    assert len(mounts) == 3
    for source, place, options in (m.groups() for m in mounts):
        subprocess.run([program.BINARY, "--mount-helper", source, place, "-f", "-o", options.rstrip('"')], check=True)
    probes = [probe["exec"]["command"] for c in containers(documents) for key, probe in c.items() if key.endswith("Probe") and "exec" in probe]
    assert len(probes) == 3
    for probe in probes:
        assert probe[:2] == ["mcorefs", "mounts"] and any(m.group(2) == probe[2] for m in mounts)


def test_the_gateways_probe_answers(python, fixtures):
    gateway = next(c for c in containers(json.loads(run(python, LOAD, CONFIGS / "kubernetes" / "gateway.yaml").stdout)))
    probes = {probe["httpGet"]["path"] for key, probe in gateway.items() if key.endswith("Probe")}
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    command, source, listen, address = gateway["args"]
    process = subprocess.Popen([program.BINARY, command, str(next((fixtures / "weights").glob("gpt2-*"))), listen,
                                address.replace("0.0.0.0:8000", f"127.0.0.1:{port}")], stderr=subprocess.DEVNULL)
    try:
        for path in probes:
            for _ in range(200):
                try:
                    assert urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10).status == 200
                    break
                except (ConnectionError, urllib.error.URLError) as why:
                    assert process.poll() is None and not isinstance(why, urllib.error.HTTPError)
                    time.sleep(0.05)
            else:
                raise AssertionError(f"{path} never answers")
    finally:
        process.terminate()
        process.wait(30)
