# Sourced by the cases in this directory. A case ends with 0, with 77 and a reason, or with any other status.
# What it mounts, starts or writes lies in $work and goes when it ends.
# shellcheck shell=bash
set -u
export LC_ALL=C.UTF-8 # messages are compared; and a locale that is not installed makes every shell complain
umask 022             # as other users look at what is made here
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
MCOREFS=$(realpath "${MCOREFS:-build/mcorefs}")
FIXTURES=$(realpath "${FIXTURES:-tests/fixtures}")
BIN=$(realpath -m "${BIN:-build/obj/tests/mount}")
work=$(mktemp -d "${TMPDIR:-/tmp}/mcorefs-mount-XXXXXX") || exit 1
chmod 755 "$work"
mnt=$work/mnt
log=$work/log
daemon=
mkdir "$mnt"
# What a model's directory has, in the order of ls.
model_views='hf
hf-bf16
hf-bin
hf-fp16
hf-fp32
megatron
raw'

# megatron_of NAME: the entries of megatron/ of a fixture's model. GPT-2's norms are not those of a HybridModel.
megatron_of() {
	case $1 in
	gpt2*) printf 'torch\ntorch_dist\n' ;;
	*) printf 'hybrid_torch\nhybrid_torch_dist\ntorch\ntorch_dist\n' ;;
	esac
}

# views_of NAME: those of a fixture's model. GPT-2's matrices are transposed, and no reader has them as 8-bit floats; how
# workers of vLLM and SGLang hold a model is known of all others, and how llama.cpp holds one of six families.
views_of() {
	{
		echo "$model_views"
		case $1 in
		llama* | qwen2* | qwen3* | mixtral* | mistral*) printf 'gguf\ngguf-f16\nhf-fp8\nhf-fp8-tensor\nsglang\nvllm\nvllm-fp8\nvllm-fp8-tensor\n' ;;
		gpt2*) ;;
		*) printf 'hf-fp8\nhf-fp8-tensor\nsglang\nvllm\nvllm-fp8\nvllm-fp8-tensor\n' ;;
		esac
	} | sort
}

skip() {
	echo "$*"
	exit 77
}

fail() {
	echo "FAILED: $*"
	[ ! -s "$log" ] || sed 's/^/log: /' "$log"
	exit 1
}

# same TEXT FOUND EXPECTED
same() {
	[ "$2" = "$3" ] || fail "$1: expected '$3', found '$2'"
}

# refused TEXT STATUS PATTERN COMMAND...: it ends with STATUS and one line on stderr like PATTERN.
refused() {
	local text=$1 status=$2 pattern=$3 out
	shift 3
	out=$("$@" 2>&1 >/dev/null)
	same "$text: exit status" "$?" "$status"
	same "$text: lines of message" "$(wc -l <<<"$out")" 1
	[[ $out =~ $pattern ]] || fail "$text: expected a message like '$pattern', found '$out'"
}

# wait_until TEXT COMMAND...: at most two minutes, which a busy machine may need.
wait_until() {
	local text=$1
	shift
	for _ in $(seq 2400); do
		"$@" && return
		sleep 0.05
	done
	fail "waited too long until $text"
}

# free_ports COUNT: ports that nobody uses, as far as one look says, and that the kernel gives to no client.
free_ports() {
	local address
	while read -r _ address _; do echo $((16#${address##*:})); done < <(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -v address) |
		sort -u >"$work/used"
	seq 20000 32000 | shuf | grep -vxFf "$work/used" | head -n "$1"
}

# send TEXT: to a socket, in one write, with \r and \n for what they stand for. The shell's own printf writes line by line:
# the other side may have answered and closed before the last one, and SIGPIPE then ends the shell.
send() {
	env printf "$1"
}

mounted() {
	mountpoint -q "$mnt"
}

not_mounted() {
	! grep -q " $mnt " /proc/self/mounts
}

# How often the log says that a mount stands.
announcements() {
	grep -cs ' is mounted on ' "$log"
}

# announced_or_ended COUNT: more than so often, or never.
announced_or_ended() {
	[ "$(announcements)" -gt "$1" ] || ended "$daemon"
}

# So has a zombie of whose threads none is left: the first process of a container may reap nobody's orphans.
ended() {
	! kill -0 "$1" 2>/dev/null || ! sed 's/.*) //' "/proc/$1/task"/*/stat 2>/dev/null | grep -qv '^[ZX]'
}

# Mounts SOURCE [OPTION...] in the background, as a user does.
mount_source() {
	"$MCOREFS" "$1" "$mnt" "${@:2}" || fail "mcorefs $* ended with status $?"
	mounted || fail "nothing is mounted after mcorefs has returned"
}

# The same in the foreground, as $daemon, with its messages in $log. A mount answers before it is announced, and its
# read-ahead is set in between.
mount_foreground() {
	local before
	touch "$log"
	before=$(announcements)
	"$MCOREFS" "$1" "$mnt" -f "${@:2}" 2>>"$log" &
	daemon=$!
	wait_until "the mount stands" announced_or_ended "$before"
	mounted || fail "mcorefs $* -f ended"
}

# Waits for $daemon to end with status 0.
expect_clean_end() {
	wait "$daemon"
	same "exit status of the daemon" "$?" 0
	daemon=
	wait_until "the mount is gone" not_mounted
}

try_unmount() {
	umount "$mnt" 2>/dev/null || fusermount3 -u "$mnt" 2>"$work/refused"
}

# Another test's "mcorefs mounts" opens a file of each mount of the machine, for a moment.
unmount() {
	local tries=100
	until try_unmount; do
		[ $((tries--)) -gt 0 ] && grep -q -i busy "$work/refused" || fail "cannot unmount: $(<"$work/refused")"
		sleep 0.05
	done
	if [ -n "$daemon" ]; then expect_clean_end; fi
}

# A copy of a fixture that may be damaged: copy_fixture weights/NAME, as $ckpt.
copy_fixture() {
	ckpt=$work/ckpt
	rm -rf "$ckpt"
	cp -a "$FIXTURES/$1" "$ckpt"
}

# What the daemon has logged, but for its start and its warnings about the checkpoint.
errors() {
	grep '^mcorefs: /' "$log" | grep -v 'is mounted on'
}

is_root() {
	[ "$(id -u)" = 0 ]
}

as_nobody() {
	setpriv --reuid=nobody --regid="$(id -g nobody)" --clear-groups "$@"
}

# Why nobody (the user) cannot mount here; not a word if he can. Where /dev/fuse is root's alone he is given another
# one, if this case has a namespace for it (lib_namespace.sh).
why_nobody_cannot_mount() {
	is_root || { echo "needs root, to be several users" && return; }
	as_nobody true 2>/dev/null || { echo "setpriv cannot become nobody" && return; }
	[ -u "$(command -v fusermount3)" ] || { echo "fusermount3 is missing, or not root's" && return; }
	if ! as_nobody test -w /dev/fuse && [ -n "${MCOREFS_TEST_NAMESPACE-}" ]; then
		mknod -m 666 "$work/fuse" c 10 229 2>/dev/null && mount --bind "$work/fuse" /dev/fuse 2>/dev/null
	fi
	as_nobody test -w /dev/fuse || { echo "nobody may not use /dev/fuse" && return; }
	as_nobody dd if=/dev/fuse count=0 status=none 2>/dev/null || { echo "nobody cannot open /dev/fuse" && return; }
	as_nobody test -x "$work" -a -r "$MCOREFS" -a -r "$FIXTURES" || echo "nobody cannot read $work, $MCOREFS and $FIXTURES"
}

end() {
	local status=$? m
	[ -z "$daemon" ] || kill "$daemon" 2>/dev/null
	awk -v dir="$work/" 'index($2, dir) == 1 { print $2 }' /proc/self/mounts | sort -r | while read -r m; do
		umount -l "$m" 2>/dev/null || fusermount3 -u -z "$m"
	done
	wait
	is_root || chmod -R u+w "$work" 2>/dev/null # copies of what is mounted cannot be written
	rm -rf "$work"
	exit "$status"
}
trap end EXIT
trap 'exit 130' INT TERM

[ -x "$MCOREFS" ] || fail "$MCOREFS is not built"
[ -w /dev/fuse ] || skip "/dev/fuse cannot be used here"
is_root || command -v fusermount3 >/dev/null || skip "fusermount3 is missing"
