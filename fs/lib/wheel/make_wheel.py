#!/usr/bin/env python3
"""make_wheel.py LIBRARY OUT: the Python package with its library as OUT/mcorefs-VERSION-py3-none-manylinux_X_Y_ARCH.whl.

`make wheel` calls it. Two builds of one library are the same file. The tag has the glibc that the library's symbols need (PEP 600).
"""
import base64
import hashlib
import pathlib
import platform
import re
import subprocess
import sys
import zipfile

PACKAGE = pathlib.Path(__file__).parent.parent / "python" / "mcorefs"
ROOT = PACKAGE.parents[3]
# Of what is linked into the library, where Debian has their licences.
INSIDE = ("libexpat1-dev", "libjansson-dev", "libpcre2-dev", "libssl-dev", "liburing-dev", "libutf8proc-dev", "libxxhash-dev",
          "libyaml-dev", "libzstd-dev", "zlib1g-dev")
SUMMARY = "Megatron-LM checkpoints as HuggingFace tensors, read straight from the source"
ENTRY_POINTS = "[vllm.general_plugins]\nmcorefs = mcorefs.vllm:register\n\n[sglang.srt.plugins]\nmcorefs = mcorefs.sglang:register\n"


def version():
    return re.search(r'MFS_VERSION *"(.*)"', (ROOT / "formats/base/version.h").read_text())[1]


def platform_tag(library):
    """manylinux_2_34_x86_64 of a library that calls functions of glibc 2.34."""
    told = subprocess.run(["readelf", "--version-info", "--wide", library], check=True, capture_output=True, text=True).stdout
    newest = max(tuple(map(int, found)) for found in re.findall(r"Name: GLIBC_(\d+)\.(\d+)", told))
    return f"manylinux_{newest[0]}_{newest[1]}_{platform.machine()}"


def needs_only_glibc(library):
    told = subprocess.run(["readelf", "--dynamic", "--wide", library], check=True, capture_output=True, text=True).stdout
    others = [name for name in re.findall(r"NEEDED.*\[(.*)\]", told) if not re.match(r"(libc|libm|libdl|libpthread|ld-linux.*)\.so\.", name)]
    if others:
        sys.exit(f"make wheel: {library} needs {', '.join(others)}, which a machine without packages of ours may not have")


def contents(library, tag):
    """{name in the wheel: bytes}."""
    info = f"mcorefs-{version()}.dist-info"
    files = {f"mcorefs/{path.name}": path.read_bytes() for path in PACKAGE.iterdir() if path.suffix == ".py" or path.name == "py.typed"}
    files["mcorefs/libmcorefs.so.0"] = library.read_bytes()
    files[f"{info}/METADATA"] = (f"Metadata-Version: 2.1\nName: mcorefs\nVersion: {version()}\nSummary: {SUMMARY}\nRequires-Python: >=3.9\n"
                                 "Description-Content-Type: text/markdown\n\n").encode() + (ROOT / "docs/LIBRARY.md").read_bytes()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: make_wheel.py\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    files[f"{info}/entry_points.txt"] = ENTRY_POINTS.encode()
    for name in INSIDE:
        licence = pathlib.Path("/usr/share/doc") / name / "copyright"
        if licence.exists():
            files[f"{info}/licenses/{name}.txt"] = licence.read_bytes()
    record = f"{info}/RECORD"
    lines = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}\n")
    files[record] = ("".join(sorted(lines)) + f"{record},,\n").encode()
    return files


def write(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name in sorted(files, key=lambda name: (name.endswith("/RECORD"), name)):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100755 if ".so" in name else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[name], compresslevel=6)


def main(library, out):
    needs_only_glibc(library)
    tag = f"py3-none-{platform_tag(library)}"
    path = out / f"mcorefs-{version()}-{tag}.whl"
    for old in out.glob("mcorefs-*.whl"):
        old.unlink()
    write(path, contents(library, tag))
    print(path)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
