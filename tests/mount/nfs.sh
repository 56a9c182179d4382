#!/bin/bash
# NFS over a mount: nfs-ganesha exports it, a client of libnfs reads. Right bytes, also after daemon and server were restarted.
. "$(dirname "$0")/lib.sh"
is_root || skip 'needs root'
for p in ganesha.nfsd nfs-cat nfs-ls; do
	command -v "$p" >/dev/null || skip "$p is missing (nfs-ganesha, nfs-ganesha-vfs, libnfs-utils)"
done

cp -a "$FIXTURES/resume/llama-torch_dist-tp2-pp2" "$work/ckpt"
ckpt=$work/ckpt
port=$(free_ports 1)
server=
cat >"$work/ganesha.conf" <<END
NFS_CORE_PARAM { Protocols = 4; NFS_Port = $port; Bind_addr = 127.0.0.1; Enable_RQUOTA = false; Enable_UDP = None; }
NFSV4 { Graceless = true; RecoveryBackend = fs; RecoveryRoot = $work/recovery; }
EXPORT {
	Export_Id = 7; Path = $mnt; Pseudo = /models; Protocols = 4; Transports = TCP; SecType = sys;
	Access_Type = RO; Squash = None; Filesystem_Id = 7.7; Attr_Expiration_Time = 1;
	FSAL { Name = VFS; }
}
LOG { Default_Log_Level = EVENT; }
END
mkdir "$work/recovery"

stop_server() {
	[ -z "$server" ] || kill "$server" 2>/dev/null
	wait "$server" 2>/dev/null
	server=
}
url() {
	echo "nfs://127.0.0.1/models/$1?version=4&nfsport=$port"
}
answers() {
	[ -n "$server" ] && ! kill -0 "$server" 2>/dev/null && return
	nfs-ls "$(url '')" >"$work/ls" 2>&1
}
start_server() {
	ganesha.nfsd -F -f "$work/ganesha.conf" -L "$work/ganesha.log" -p "$work/ganesha.pid" 2>/dev/null &
	server=$!
	wait_until 'the NFS server answers' answers
	kill -0 "$server" 2>/dev/null ||
		fail "the NFS server has ended: $(grep -E 'WARN|CRIT|FATAL|ERROR' "$work/ganesha.log" | grep -v DBUS | tail -n 5)"
}
trap 'rc=$?; stop_server; (exit $rc); end' EXIT

files=(hf/config.json hf/model.safetensors megatron/torch/tp2-pp1/iter_0000040/mp_rank_01/model_optim_rng.pt)
# read_all TEXT: what NFS reads is what the mount shows.
read_all() {
	local file
	grep -q iter_0000040 "$work/ls" || fail "$1: no iteration in $(cat "$work/ls")"
	for file in "${files[@]}"; do
		nfs-cat "$(url "iter_0000040/$file")" 2>"$work/why" | cmp - "$work/expected/${file##*/}" ||
			fail "$1: $file: $(cat "$work/why")"
	done
}

mount_foreground "$ckpt"
mkdir "$work/expected"
for file in "${files[@]}"; do cp "$mnt/iter_0000040/$file" "$work/expected/"; done
start_server
read_all 'at first'
echo 2 >/proc/sys/vm/drop_caches 2>/dev/null
read_all 'after the kernel has forgotten'

# A new iteration shows.
cp -a "$ckpt/iter_0000040" "$ckpt/new" && mv "$ckpt/new" "$ckpt/iter_0000060"
echo -n 60 >"$ckpt/latest_checkpointed_iteration.txt"
shows_new() { nfs-ls "$(url '')" 2>/dev/null | grep -q iter_0000060; }
wait_until 'a new iteration shows' shows_new

# The order for a restart: the server first, since it has files of the mount open.
stop_server
unmount
mount_foreground "$ckpt"
start_server
read_all 'after mount and server were restarted'

# The daemon dies under the server.
kill -9 "$daemon"
wait "$daemon" 2>/dev/null
daemon=
nfs-cat "$(url iter_0000040/hf/config.json)" >"$work/read" 2>/dev/null && ! cmp -s "$work/read" "$work/expected/config.json" &&
	fail 'without a daemon NFS reads other bytes'
stop_server
umount -l "$mnt"
mount_foreground "$ckpt"
start_server
read_all 'after the daemon was killed'
stop_server
unmount
