#!/usr/bin/env bash
# Other people's programs judge what mcorefs shows: transformers, safetensors, vLLM, MLX, and megatron-core as the writer.
#
#   tests/interop/run.sh [pytest arguments]       for instance: -k vllm, -x, test_layouts.py
#   tests/interop/run.sh --install                makes all virtual environments and ends; mcorefs need not be built
#
# Without arguments the tests of datasets (and others) run at the same time as those of models where two processors and 8 GiB are free.
#
# MCOREFS_BINARY    the program under test           (build/mcorefs)
# MCOREFS_FIXTURES  weights/, resume/ and data/      (tests/fixtures)
# MCOREFS_VENVS     virtual environments and written checkpoints, kept for the next run  (~/.cache/mcorefs-interop)
#
# The last line says `N passed, N failed, N skipped`; the exit status is 1 if anything failed.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
export MCOREFS_BINARY=${MCOREFS_BINARY:-$root/build/mcorefs}
export MCOREFS_FIXTURES=${MCOREFS_FIXTURES:-$root/tests/fixtures}
export MCOREFS_VENVS=${MCOREFS_VENVS:-${XDG_CACHE_HOME:-$HOME/.cache}/mcorefs-interop}
export PYTHONWARNINGS=ignore OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1
# What the peers cache lies with them, neither in the tree nor all over the home directory.
export PYTHONPYCACHEPREFIX=$MCOREFS_VENVS/bytecode VLLM_CACHE_ROOT=$MCOREFS_VENVS/vllm

finish() { # PASSED FAILED SKIPPED
    echo "$1 passed, $2 failed, $3 skipped"
    [ "$2" -eq 0 ]
    exit
}

skip_all() {
    echo "skipped: $1"
    finish 0 0 1
}

# The last lines of an installer's complaint, as one line.
complaint() { tail -n 3 "$1" | tr -s '\n ' ' '; }

find_uv() {
    if command -v uv >/dev/null && uv --version >/dev/null 2>&1; then
        command -v uv
        return
    fi
    local venv=$MCOREFS_VENVS/bootstrap
    if [ ! -x "$venv/bin/uv" ]; then
        python3 -m venv "$venv" && "$venv/bin/python" -m pip install --quiet uv || return
    fi
    echo "$venv/bin/uv"
}

# The main set holds vLLM; where that cannot be installed the lean one still has torch, megatron-core and transformers.
install_main() {
    local python=$MCOREFS_VENVS/main/bin/python log=$MCOREFS_VENVS/install.log stamp=$MCOREFS_VENVS/main/installed
    local want
    want=$(cat "$here"/requirements.txt "$here"/overrides.txt "$here"/requirements-lean.txt | cksum)
    if [ "$(head -n 1 "$stamp" 2>/dev/null)" = "$want" ]; then
        MCOREFS_NO_VLLM=$(tail -n +2 "$stamp")
        return
    fi
    "$MCOREFS_UV" venv --quiet --clear --python 3.11 "$MCOREFS_VENVS/main" 2>"$log" \
        || "$MCOREFS_UV" venv --quiet --clear "$MCOREFS_VENVS/main" 2>"$log" || return
    MCOREFS_NO_VLLM=
    if ! "$MCOREFS_UV" pip install --quiet --python "$python" -r "$here/requirements.txt" --override "$here/overrides.txt" 2>"$log"; then
        MCOREFS_NO_VLLM=$(complaint "$log")
        "$MCOREFS_UV" pip install --quiet --python "$python" --no-deps -r "$here/requirements-lean.txt" 2>"$log" \
            && "$MCOREFS_UV" pip install --quiet --python "$python" pytest 2>"$log" || return
    fi
    printf '%s\n%s' "$want" "$MCOREFS_NO_VLLM" >"$stamp"
}

if [ "${1-}" != --install ] && [ ! -x "$MCOREFS_BINARY" ]; then
    echo "$MCOREFS_BINARY is not there: run make first"
    finish 0 1 0
fi
command -v python3 >/dev/null && python3 -c 'import venv, ensurepip' 2>/dev/null || skip_all "no python3 with venv on this machine"
mkdir -p "$MCOREFS_VENVS" || skip_all "no place for the virtual environments: $MCOREFS_VENVS"
MCOREFS_UV=$(find_uv) || skip_all "uv: could not be installed"
export MCOREFS_UV
install_main || skip_all "torch, transformers: could not be installed: $(complaint "$MCOREFS_VENVS/install.log")"
export MCOREFS_NO_VLLM
if [ "${1-}" = --install ]; then
    [ -z "$MCOREFS_NO_VLLM" ] || echo "vLLM: could not be installed: $MCOREFS_NO_VLLM"
    exec "$MCOREFS_VENVS/main/bin/python" "$here/venvs.py"
fi

work=$(mktemp -d)
# A process that is ended leaves the lock of what it compiles, and all later ones wait for it: not beyond this run.
export TORCH_EXTENSIONS_DIR=$work/torch_extensions
beside=
trap '[ -z "$beside" ] || { kill "$beside" && wait "$beside"; } 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
cd "$here" || finish 0 1 0

# ask NAME [pytest arguments]: what came of it is in $work/counts.NAME.
ask() {
    echo 0 1 0 >"$work/counts.$1"  # should pytest not get to its end
    MCOREFS_COUNTS=$work/counts.$1 exec "$MCOREFS_VENVS/main/bin/python" -m pytest -q --no-header -p no:cacheprovider "${@:2}"
}

# Nearly all of the time one process computes: where two have room, those for datasets run at the same time as those for models,
# and with them files that need no checkpoint of megatron-core's, so that both halves take the same time (600 s each).
two_have_room() {
    [ "$(env -u OMP_NUM_THREADS nproc)" -gt 1 ] && awk '/^MemAvailable:/ { exit $2 < 8 * 1024 * 1024 }' /proc/meminfo
}

if [ $# = 0 ] && two_have_room; then
    shopt -s extglob
    data='test_@(bridge_optimizer|data|fsck|gguf|gpt_dataset|hf_dataset|index_cache|pack|remote|samples|train)*.py'
    # shellcheck disable=SC2086
    (ask data $data) >"$work/log" 2>&1 &
    beside=$!
    # shellcheck disable=SC2046,SC2086
    (ask models $(printf '%s\n' test_*.py | grep -vxF "$(printf '%s\n' $data)"))
    wait "$beside"
    beside=
    cat "$work/log"
else
    (ask all "$@")
fi
read -r passed failed skipped < <(cat "$work"/counts.* | awk '{ p += $1; f += $2; s += $3 } END { print p, f, s }')
finish "$passed" "$failed" "$skipped"
