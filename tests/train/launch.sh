#!/bin/bash
# The launch files of configs/train. mpirun.sh and mounted.sh train; torchrun and srun, which are not here, are played by scripts that set
# the environment which those set.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/train/processes.sh
processes_begin launch
: >"$work/log"
family_args llama
{
	echo "arguments=($(printf '%q ' "${args[@]}"))"
	echo 'arguments+=(--backend cpu --threads 1 --exit-interval 2)'
} >"$work/arguments.sh"
export TRAIN=$train MPIRUN="${launcher[*]:0:5}" PATH=$work/bin:$PATH
mkdir "$work/bin" "$work/mnt"

bad=0
for f in configs/train/*.sh; do bash -n "$f" || bad=1; done
verdict $bad "they parse"

# Llama-3-8B has 8.03 billion parameters, and its two processes share nothing.
cat >"$work/bin/torchrun" <<'E2'
#!/bin/bash
while [[ $1 == --* ]]; do
	case $1 in
	--nnodes) nodes=$2 ;;
	--nproc-per-node) each=$2 ;;
	--node-rank) node=$2 ;;
	--master-addr) export MASTER_ADDR=$2 ;;
	--master-port) export MASTER_PORT=$2 ;;
	--no-python) shift && continue ;;
	esac
	shift 2
done
[ "$MASTER_ADDR:$MASTER_PORT" = node1:29500 ] || exit 3
RANK=$((node * each)) WORLD_SIZE=$((nodes * each)) LOCAL_RANK=0 LOCAL_WORLD_SIZE=$each exec "$@"
E2
cat >"$work/bin/srun" <<'E2'
#!/bin/bash
while [[ $1 == --* ]]; do shift; done
[ "$MASTER_ADDR:$MASTER_PORT" = node1:29500 ] || exit 3
SLURM_PROCID=0 SLURM_NTASKS=16 SLURM_LOCALID=0 SLURM_STEP_ID=0 exec "$@"
E2
printf '#!/bin/bash\nprintf "node1\\nnode2\\n"\n' >"$work/bin/scontrol"
chmod +x "$work/bin"/*
NODE=0 MASTER_ADDR=node1 configs/train/torchrun.sh 2 8 --mock-data --dry-run >"$work/log" 2>&1 &&
	grep -q "for 8030.261 million parameters" "$work/log"
verdict $? "torchrun.sh: 16 processes of Llama-3-8B"
(cd configs/train && SLURM_JOB_NODELIST='node[1-2]' ./srun.sh --mock-data --dry-run) >"$work/log" 2>&1 && grep -q "for 8030.261 million parameters" "$work/log"
verdict $? "srun.sh: 16 processes of Llama-3-8B"
# Each stage of a pipeline is planned; together they have the whole model, and the first keeps most.
NODE=0 MASTER_ADDR=node1 configs/train/torchrun.sh 2 8 --mock-data --dry-run --pipeline-model-parallel-size 4 >"$work/log" 2>&1 &&
	sed -nE 's/^stage [0-3] of 4: memory: .* for ([0-9.]+) million.*/\1/p' "$work/log" |
	awk '{ sum += $1 } END { exit !(NR == 4 && sum > 8030.25 && sum < 8030.27) }' && grep -q "^stage 0 needs the most, of 16 processes: " "$work/log"
verdict $? "the stages of a plan"
# Both say how many processes there are: 512 samples are no multiple of 16 times 3.
NODE=0 MASTER_ADDR=node1 configs/train/torchrun.sh 2 8 --mock-data --dry-run --micro-batch-size 3 >"$work/log" 2>&1
[ $? != 0 ] && grep -q "3 times 16 processes, found 512" "$work/log"
verdict $? "an argument behind the set has the last word"

export ARGUMENTS=$work/arguments.sh
configs/train/mpirun.sh 2 --save "$work/save" --save-interval 1 >"$work/log" 2>&1 && grep -q "processes: 2, started by mpirun" "$work/log" &&
	[ "$(cat "$work/save/latest_checkpointed_iteration.txt")" = 2 ]
verdict $? "mpirun.sh: two processes train and save"

printf '#!/bin/bash\n[ ! -s "$1/config.json" ] || echo "${1##*/mnt/} $(stat -c %%s "$1/model.safetensors")" >>"%s/served"\nexec sleep 1\n' "$work" >"$work/bin/serve"
chmod +x "$work/bin/serve"
if [ -e /dev/fuse ] && command -v fusermount3 >/dev/null; then
	rm -rf "$work/save"
	MCOREFS=$(dirname "$train")/mcorefs SERVE=serve LOOK=0.2 configs/train/mounted.sh "$work/save" "$work/mnt" \
		configs/train/mpirun.sh 2 --save "$work/save" --save-interval 20 --exit-interval 40 \
		--eval-interval 1000 >"$work/log" 2>&1 && [ "$(tail -n 1 "$work/served" | cut -d' ' -f1)" = iter_0000040/hf ] &&
		[ "$(cut -d' ' -f2 "$work/served" | sort -u | wc -l)" = 1 ] && ! mountpoint -q "$work/mnt"
	verdict $? "mounted.sh: what is saved is served, the last iteration in the end"
	# Who trains saves, and ends after the engine's start.
	cat >"$work/bin/trainer" <<'E2'
#!/bin/bash
while [[ $1 != --rl-sync-dir ]]; do shift; done
[ "$3 $5 $6" = "--rl-mount --rl-inference-url http://127.0.0.1:8001" ] || exit 3
cp -r "${0%/bin/*}/save/." "$2"
until [ -s "${0%/bin/*}/started" ]; do sleep 0.05; done
exit 7
E2
	printf '#!/bin/bash\n[ -s "$1/config.json" ] && echo "$VLLM_SERVER_DEV_MODE $*" >"%s/started"\nexec sleep 60\n' "$work" >"$work/bin/engine"
	chmod +x "$work/bin/trainer" "$work/bin/engine"
	MCOREFS=$(dirname "$train")/mcorefs VLLM=engine PORT=8001 SYNC=$work/sync timeout 30 configs/train/grpo-vllm.sh "$work/mnt" trainer --lr 1 >"$work/log" 2>&1
	[ $? = 7 ] && grep -q "^1 $work/mnt/iter_0000040/hf .*--port 8001 --enable-scale-out" "$work/started" && [ ! -e "$work/sync" ] &&
		! mountpoint -q "$work/mnt"
	verdict $? "grpo-vllm.sh: the engine starts with the first weights"
fi

# It saves when it is told to end.
cat >"$work/bin/trainer" <<'E2'
#!/bin/bash
while [[ $1 != --rl-sync-dir ]]; do shift; done
trap 'kill $!; sleep 0.3; mkdir -p "$2"; echo 1 >"$2/late"; echo >"${0%/bin/*}/ended"; exit 0' TERM
sleep 20 &
echo >"${0%/bin/*}/begun"
wait
E2
chmod +x "$work/bin/trainer"
SYNC=$work/sync configs/train/grpo-vllm.sh "$work/mnt" trainer >"$work/log" 2>&1 &
pid=$!
until [ -e "$work/begun" ] || ! kill -0 $pid 2>/dev/null; do sleep 0.05; done
kill $pid
wait $pid
[ $? = 143 ] && [ -e "$work/ended" ] && [ ! -e "$work/sync" ]
verdict $? "grpo-vllm.sh: it waits for who trains"
processes_end
