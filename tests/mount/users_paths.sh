#!/bin/bash
# Through a mount of root's with allow_other nobody reads what he could not read at the source: directories on the way,
# links, ACLs, owners and groups count, and what is changed there while the mount is open.
. "$(dirname "$0")/lib.sh"

is_root || skip "needs root, to be several users"
[ -x "$BIN/acl" ] || fail "$BIN/acl is not built"
# What runs with the test ends with it, however it does.
stop=$work/stop
trap 'status=$?; touch "$stop"; (exit $status); end' EXIT
team=70100 guests=70200
# as USER[,GROUP] COMMAND...
as() {
	local user=${1%%,*} groups=--clear-groups
	[ "$1" = "$user" ] || groups=--groups=${1#*,}
	setpriv --reuid="$user" --regid="$user" "$groups" "${@:2}"
}
alice=70001 bob=70002
member=$bob,$team
as $bob true 2>/dev/null || skip "setpriv cannot become another user"
as $bob test -x "$work" || skip "another user cannot enter $work"

reads() {
	as "$2" cat "$3" >/dev/null 2>&1 || fail "$1: $2 cannot read $3"
}
reads_not() {
	! as "$2" cat "$3" >/dev/null 2>&1 || fail "$1: $2 reads $3"
}
# both_or_neither TEXT USER FILE HERE: he may here if he may there.
both_or_neither() {
	if as "$2" cat "$3" >/dev/null 2>&1; then reads "$1" "$2" "$4"; else reads_not "$1" "$2" "$4"; fi
}

copy_fixture weights/qwen3-torch_dist-tp4
own() { chown -R $alice:$alice "$1" && chmod -R u=rwX,go=rX "$1"; }
own "$ckpt"
hf=$work/hf
"$MCOREFS" export "$ckpt" hf "$hf" >/dev/null 2>&1 || fail "export"
echo '{{ messages }}' >"$hf/chat_template.jinja"
own "$hf"

# ---- directories above SOURCE, data=, ref= ----

home=$work/home
mkdir "$home" "$work/corpus" "$work/model"
cp -r "$ckpt" "$home/run"
cp "$FIXTURES"/data/tales_text_document.* "$work/corpus"
cp -r "$hf" "$work/model/hf"
own "$home"
own "$work/corpus"
own "$work/model"
m=$mnt/latest/megatron/torch_dist/iter_0000040
mount_source "$home/run" -o allow_other,data="$work/corpus/tales_text_document",ref="$work/model/hf"
tales=$mnt/data/tales_text_document/npy/tokens.npy
for f in "$mnt/latest/hf/config.json" "$mnt/latest/hf/chat_template.jinja" "$m/common.pt" "$tales"; do
	reads "all is open" $bob "$f"
	reads "all is open" $alice "$f"
done
bystander=$work/bystander
cd "$mnt/latest/hf" || fail "cd"
as $bob sh -c "until [ -e $stop ] || ! [ -e $work ]; do
	cat config.json >/dev/null 2>&1 && echo reads >$bystander || echo not >$bystander; mv $bystander $bystander.now; sleep 0.1
done" >/dev/null 2>&1 &
cd - >/dev/null || fail "cd"
says() { [ "$(cat "$bystander.now" 2>/dev/null)" = "$1" ]; }
chmod 777 "$work"
wait_until "one who is in the directory reads" says reads

# What is closed, or opened, while the mount stands counts a little later: for open views, too.
exec 9<"$mnt/latest/hf/config.json"
shut() { ! as "$1" cat "$2" >/dev/null 2>&1; }
open_() { as "$1" cat "$2" >/dev/null 2>&1; }
chmod 700 "$home"
wait_until "the home is closed" shut $bob "$mnt/latest/hf/config.json"
wait_until "the home is closed to one who was inside" says not
wait_until "the home is closed to Megatron's files" shut $bob "$m/common.pt"
reads "his home is closed" $alice "$mnt/latest/hf/config.json"
chmod 755 "$home"
wait_until "the home is open again" open_ $bob "$mnt/latest/hf/config.json"
wait_until "the home is open again to one who was inside" says reads
touch "$stop"
wait -n
rm "$stop"
chmod 700 "$work/corpus"
wait_until "what lies above data= is closed" shut $bob "$tales"
wait_until "and its directory" shut $bob "$mnt/data/tales_text_document/npy"
reads "the rest is open" $bob "$m/common.pt"
chmod 755 "$work/corpus"
chmod 700 "$work/model"
wait_until "what lies above ref= is closed" shut $bob "$mnt/latest/hf/chat_template.jinja"
wait_until "its config.json as well" shut $bob "$mnt/latest/hf/config.json"
chmod 755 "$work/model"
chmod 600 "$work/model/hf/config.json"
wait_until "config.json of ref= is closed" shut $bob "$mnt/latest/hf/config.json"
chmod 644 "$work/model/hf/config.json"
wait_until "all is open again" open_ $bob "$mnt/latest/hf/config.json"
# A view that is entered for the first time is as closed as those that stand already, whose checkpoint it shares.
chmod 600 "$home/run/iter_0000040"/*.distcp
wait_until "the files are closed" shut $bob "$m/common.pt"
fresh=$mnt/latest/megatron/torch/tp1-pp1/iter_0000040/mp_rank_00/model_optim_rng.pt
reads_not "a view that nobody has entered" $bob "$fresh"
reads "a view that nobody has entered" $alice "$fresh"
chmod 644 "$home/run/iter_0000040"/*.distcp
wait_until "the files are open again" open_ $bob "$fresh"
chown -R root:root "$home/run/iter_0000040"
chmod 600 "$home/run/iter_0000040"/*.distcp
wait_until "the files are root's" shut $alice "$mnt/latest/hf/config.json"
exec 9<&-
unmount
chmod 755 "$work"

# Closed from the beginning.
own "$home"
for closed in "$home" "$home/run/iter_0000040"; do
	chmod 700 "$closed"
	mount_source "$home/run" -o allow_other
	reads_not "$closed is closed" $bob "$mnt/latest/hf/config.json"
	reads_not "$closed is closed" $bob "$m/common.pt"
	! as $bob ls "$mnt/iter_0000040/hf" >/dev/null 2>&1 || fail "$closed is closed: another user lists the view"
	reads "$closed is closed" $alice "$mnt/latest/hf/config.json"
	unmount
	chmod 755 "$closed"
done

# A directory's owner and group are not the file's: members of the one are none of the other.
chown $alice:$guests "$home"
chmod 750 "$home"
chgrp -R $team "$home/run"
chmod -R o= "$home/run"
mount_source "$home/run" -o allow_other
for user in $bob $member $bob,$guests $bob,$team,$guests $alice; do
	as "$user" cat "$home/run/iter_0000040/.metadata" >/dev/null 2>&1 ||
		reads_not "a directory of another group" "$user" "$mnt/latest/hf/config.json"
done
reads "a directory of another group" $alice "$mnt/latest/hf/config.json"
unmount
chgrp -R $team "$home"
mount_source "$home/run" -o allow_other
for user in $bob $member $bob,$guests $bob,$team,$guests $alice; do
	both_or_neither "one group" "$user" "$home/run/iter_0000040/.metadata" "$mnt/latest/hf/config.json"
done
unmount
own "$home"

# ---- links ----

# A cache of HuggingFace's: what is shown is reached through links.
mkdir -p "$work/cache/blobs" "$work/cache/snapshots/1"
for f in "$hf"/*; do
	cp "$f" "$work/cache/blobs/blob-${f##*/}"
	ln -s "../../blobs/blob-${f##*/}" "$work/cache/snapshots/1/${f##*/}"
done
own "$work/cache"
snapshot=$work/cache/snapshots/1
mount_source "$snapshot" -o allow_other
for f in "$mnt"/hf/*; do reads "a cache of links" $bob "$f"; done
cmp -s "$mnt/hf/chat_template.jinja" "$hf/chat_template.jinja" || fail "a cache of links: other bytes"
chmod 700 "$work/cache/blobs"
for f in "$mnt"/hf/*; do wait_until "the directory behind the links is closed" shut $bob "$f"; done
reads "the directory behind the links is closed" $alice "$mnt/hf/config.json"
unmount
chmod 755 "$work/cache/blobs"

# SOURCE's owner makes a link to what is root's alone.
private=$work/private
mkdir -m 700 "$private"
echo 'a secret' >"$private/secret"
chmod 644 "$private/secret"
ln -sf "$private/secret" "$snapshot/chat_template.jinja"
mount_source "$snapshot" -o allow_other
reads_not "a link to root's" $alice "$mnt/hf/chat_template.jinja"
reads_not "a link to root's" $bob "$mnt/hf/chat_template.jinja"
reads "a link to root's" 0 "$mnt/hf/chat_template.jinja"
unmount

# And changes it all the time: what is read is what was walked.
echo 'no secret' >"$work/public"
chmod 644 "$work/public"
as $alice sh -c "until [ -e $stop ] || ! [ -e $work ]; do
	ln -sfn $private/secret $work/cache/new && mv -T $work/cache/new $snapshot/chat_template.jinja
	ln -sfn $work/public $work/cache/new && mv -T $work/cache/new $snapshot/chat_template.jinja
done" >/dev/null 2>&1 &
shown=0
for _ in $(seq 20); do
	mount_source "$snapshot" -o allow_other
	for _ in 1 2 3; do
		read_by_bob=$(as $bob cat "$mnt/hf/chat_template.jinja" 2>/dev/null)
		[ "$read_by_bob" != 'a secret' ] || fail "a link that is changed: another user reads what is root's"
		[ "$read_by_bob" != 'no secret' ] || shown=$((shown + 1))
	done
	unmount
done
touch "$stop"
wait -n
echo "read $shown times through a link that is changed"

# ---- ACLs ----

acl() {
	"$BIN/acl" "$@" 2>/dev/null
}
file=$work/corpus/tales_text_document.bin
own "$work/corpus"
if ! acl "$file" user::6 user:$bob:4 group::0 mask::4 other::0; then
	echo "skipped: users_paths: ACLs: the file system of $work takes none"
	exit 0
fi
prefix=$work/corpus/tales_text_document
tokens=$mnt/data/tales_text_document/npy/tokens.npy
# check_acl TEXT: nobody reads more than at the source.
check_acl() {
	mount_source "$prefix" -o allow_other
	for user in $alice $bob $member $bob,$guests 70003 70003,$team 70003,$guests; do
		as "$user" cat "$file" >/dev/null 2>&1 || reads_not "$1" "$user" "$tokens"
	done
	reads "$1" $alice "$tokens"
	unmount
}
chgrp $team "$prefix".*
check_acl "an ACL for one user, whose mask looks like the group's bits"
acl "$file" user::6 user:$bob:0 group::4 mask::4 other::4 || fail "acl"
check_acl "an ACL against one user"
acl "$file" user::6 group::4 group:$guests:0 mask::4 other::4 || fail "acl"
check_acl "an ACL against one group"
acl "$file" user::6 user:$bob:4 group::4 mask::4 other::4 || fail "acl"
mount_source "$prefix" -o allow_other
reads "an ACL that lets all in" 70003 "$tokens"
# It is taken back while the mount stands.
acl "$file" user::6 user:70003:0 group::4 mask::4 other::4 || fail "acl"
wait_until "an ACL counts" shut 70003 "$tokens"
unmount
chmod 644 "$file"
acl "$file" user::6 group::4 other::4 || fail "acl"
acl "$work/corpus" user::7 user:$bob:0 group::5 mask::5 other::5 || fail "acl"
check_acl "an ACL of a directory"
