#!/bin/bash
# tests/long/odd_requests.sh [COUNT]: COUNT odd requests (a million) to a gateway, in pipelines. Its memory is measured after
# a tenth of them and at the end: what a request leaves in memory would add up. tests/mount/gateway.sh does the same with fewer.
. "$(dirname "$0")/../mount/lib.sh"
. "$(dirname "$0")/../mount/lib_gateway.sh"

command -v python3 >/dev/null || skip "python3 is not installed"
count=${1:-1000000}
serve lab/x="$FIXTURES/hf/llama-safetensors" --listen 127.0.0.1:0
flat_memory "$count"
stop
