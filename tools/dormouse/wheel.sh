#!/usr/bin/env bash
# Builds a wheel for Linux on x86-64 whose only content is the command `dormouse`, so that pip can put it on a PATH:
#
#   tools/dormouse/wheel.sh [FOLDER]     default folder: dist in the current one; prints the wheel's path
#   pip install FOLDER/dormouse_serve-*.whl
#
# The program is static: it runs on any Linux, with glibc or musl. Needs Go and Python 3. The same sources give the same bytes.
set -euo pipefail

out=$(mkdir -p "${1:-dist}" && cd "${1:-dist}" && pwd)
cd "$(dirname "$0")/../.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -trimpath -buildvcs=false -ldflags=-s -o "$tmp/dormouse" ./tools/dormouse
version=$(sed -n 's/^const Version = "\(.*\)"$/\1/p' internal/version/version.go)

python3 - "$tmp/dormouse" "${version/-dev/.dev0}" "$out" <<'PY'
import base64, hashlib, sys, zipfile
from pathlib import Path

program, version, out = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
name = f"dormouse_serve-{version}"
files = [
    (f"{name}.data/scripts/dormouse", program.read_bytes(), 0o755),
    (f"{name}.dist-info/METADATA", f"""Metadata-Version: 2.1
Name: dormouse-serve
Version: {version}
Summary: Keeps what llama-server has computed of your prompts: the command dormouse
License-File: LICENSE
""".encode(), 0o644),
    (f"{name}.dist-info/LICENSE", Path("LICENSE").read_bytes(), 0o644),
    (f"{name}.dist-info/WHEEL", b"""Wheel-Version: 1.0
Generator: tools/dormouse/wheel.sh
Root-Is-Purelib: false
Tag: py3-none-manylinux2014_x86_64
Tag: py3-none-musllinux_1_1_x86_64
""", 0o644),
]
record = "".join(
    f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n" for path, data, _ in files
) + f"{name}.dist-info/RECORD,,\n"
files.append((f"{name}.dist-info/RECORD", record.encode(), 0o644))
wheel = out / f"{name}-py3-none-manylinux2014_x86_64.musllinux_1_1_x86_64.whl"
with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as z:
    for path, data, mode in files:
        info = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
        info.external_attr, info.compress_type = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
        z.writestr(info, data)
print(wheel)
PY
