#!/bin/bash
# SMB over a mount: Samba shares it, smbclient reads. Right bytes, also after daemon and server were restarted.
. "$(dirname "$0")/lib.sh"
is_root || skip 'needs root'
for p in smbd smbclient; do
	command -v "$p" >/dev/null || skip "$p is missing (samba, smbclient)"
done

ckpt=$FIXTURES/resume/llama-torch_dist-tp2-pp2
port=$(free_ports 1)
server=
mkdir "$work/smb" "$work/smb/ncalrpc"
cat >"$work/smb.conf" <<END
[global]
	smb ports = $port
	interfaces = lo
	bind interfaces only = yes
	map to guest = Bad User
	guest account = root
	load printers = no
	disable spoolss = yes
	private dir = $work/smb
	lock directory = $work/smb
	state directory = $work/smb
	cache directory = $work/smb
	pid directory = $work/smb
	ncalrpc dir = $work/smb/ncalrpc
	log file = $work/smb/log
[models]
	path = $mnt
	read only = yes
	guest ok = yes
END

client() {
	smbclient -s "$work/smb.conf" -p "$port" -N -t 60 //127.0.0.1/models -c "$1" 2>&1
}
answers() {
	ended "$server" || client ls >"$work/ls"
}
start_server() {
	smbd -F -s "$work/smb.conf" -l "$work/smb" >/dev/null 2>&1 &
	server=$!
	wait_until 'the SMB server answers' answers
	! ended "$server" || fail "smbd has ended: $(tail -n 3 "$work/smb/log"*)"
}
stop_server() {
	[ -z "$server" ] || kill "$server" 2>/dev/null
	wait "$server" 2>/dev/null
	server=
}
trap 'rc=$?; stop_server; (exit $rc); end' EXIT

files=(hf/config.json hf/model.safetensors megatron/torch/tp2-pp1/iter_0000040/mp_rank_01/model_optim_rng.pt)
read_all() {
	local file said
	grep -q iter_0000040 "$work/ls" || fail "$1: no iteration in $(cat "$work/ls")"
	for file in "${files[@]}"; do
		rm -f "$work/read"
		said=$(client "get iter_0000040/$file $work/read")
		cmp "$work/read" "$work/expected/${file##*/}" || fail "$1: $file: $said"
	done
}

mount_foreground "$ckpt"
mkdir "$work/expected"
for file in "${files[@]}"; do cp "$mnt/iter_0000040/$file" "$work/expected/"; done
start_server
read_all 'at first'
stop_server
unmount
mount_foreground "$ckpt"
start_server
read_all 'after mount and server were restarted'
[[ $(client "put $work/smb.conf iter_0000040/new") == *NT_STATUS_* ]] || fail 'a file was written'
stop_server
unmount
