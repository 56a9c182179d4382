#!/bin/bash
# What the Makefile has built is what it says: each variant's objects have its sanitizers, and no others.
set -u
cd "$(dirname "$0")/.." || exit 1
O=${O:-build}
object=formats/torch/pickle.o # arithmetic, shifts and pointers: every sanitizer has something to do in it
command -v nm >/dev/null || { echo 'nm is missing'; exit 77; }
failed=0 looked=0

# has VARIANT yes|no PREFIX...: symbols that the object asks the sanitizers' libraries for.
has() {
	local variant=$1 expected=$2 found prefix
	shift 2
	[ -f "$O/$variant/$object" ] || return
	looked=1
	for prefix; do
		found=no
		if nm -u "$O/$variant/$object" | grep -q " $prefix"; then found=yes; fi
		[ $found = "$expected" ] && continue
		echo "$O/$variant/$object: $prefix*: expected $expected, found $found"
		failed=1
	done
}

has obj no __asan_ __ubsan_ __tsan_ __sanitizer_cov_
has asan yes __asan_ __ubsan_
has asan no __tsan_ __sanitizer_cov_
has tsan yes __tsan_
has tsan no __asan_
has fuzz yes __asan_ __ubsan_ __sanitizer_cov_
has fuzz no __tsan_
[ $looked = 1 ] || { echo "nothing is built in $O"; exit 77; }

# For which GPUs kernels are compiled: those that nvidia-smi names, and where it names none for those of data centres.
bin=$(mktemp -d) || exit 1
trap 'rm -rf "$bin"' EXIT
chmod 755 "$bin"

# gpus SAID EXPECTED
gpus() {
	local found
	printf "#!/bin/sh\nprintf '$1'\n" >"$bin/nvidia-smi"
	chmod +x "$bin/nvidia-smi"
	# shellcheck disable=SC2016 # make's own
	found=$(PATH=$bin:$PATH env -u CUDA_ARCH make -s --no-print-directory NVCC=/bin/true --eval='gpus: ; @echo $(CUDA_ARCH): $(if $(GPUS),here,none)' gpus)
	[ "$found" = "$2" ] && return
	echo "kernels are compiled for '$found', expected '$2'"
	failed=1
}
gpus '9.0\n9.0\n8.0\n' '80 90: here'
gpus 'No devices were found\n' '80 90: none'
gpus 'NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver.\n\n' '80 90: none'
exit $failed
