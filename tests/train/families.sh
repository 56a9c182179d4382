# The command lines of the runs in tests/fixtures/resume, as pretrain_gpt.py was given them. Sourced by tests.
#
# family_args FAMILY: fills the array args.
# valid_args PREFIX...: all of the data of args is for training, and all of each prefix is for validation.

common="--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --max-position-embeddings 256
--micro-batch-size 2 --global-batch-size 8 --train-iters 40 --eval-interval 20 --eval-iters 1 --log-interval 1 --seed 1234
--lr 1e-3 --min-lr 1e-4 --lr-decay-style cosine --lr-decay-iters 40 --lr-warmup-iters 5
--optimizer adam --adam-beta1 0.9 --adam-beta2 0.95 --weight-decay 0.1 --clip-grad 1.0
--attention-dropout 0 --hidden-dropout 0 --init-method-std 0.02 --transformer-impl local
--tokenizer-type HuggingFaceTokenizer --make-vocab-size-divisible-by 64 --split 90,10,0"
rope="--ffn-hidden-size 176 --normalization RMSNorm --swiglu --position-embedding-type rope --disable-bias-linear"
groups="--group-query-attention --num-query-groups 2"
untied="--untie-embeddings-and-output-weights"
moe="--moe-token-dispatcher-type alltoall --num-experts 4 --moe-router-topk 2"

declare -A family=(
	[llama]="$rope $groups $untied"
	[qwen2]="$rope $groups --add-qkv-bias --rotary-base 1000000"
	[qwen3]="$rope --group-query-attention --num-query-groups 4 --kv-channels 32 --qk-layernorm --rotary-base 1000000"
	[gpt2]="--ffn-hidden-size 256 --normalization LayerNorm --position-embedding-type learned_absolute --add-qkv-bias"
	[mixtral]="$rope $groups $untied $moe --moe-ffn-hidden-size 176 --moe-aux-loss-coeff 1e-2"
	[biased]="${rope% *} $groups $untied $moe --moe-ffn-hidden-size 96 --moe-aux-loss-coeff 1e-2"
	[deepseek]="$rope $untied $moe --multi-latent-attention --q-lora-rank 32 --kv-lora-rank 16 --qk-head-dim 16
		--qk-pos-emb-head-dim 8 --v-head-dim 16 --rope-type rope --qk-layernorm --moe-ffn-hidden-size 48
		--moe-layer-freq [0]+[1]*3 --moe-router-score-function sigmoid --moe-router-enable-expert-bias
		--moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 1e-4 --moe-router-dtype fp32
		--moe-shared-expert-intermediate-size 48"
	[next]="$rope $groups $untied --transformer-impl transformer_engine --apply-layernorm-1p --rotary-percent 0.5 --qk-layernorm
		--attention-output-gate --experimental-attention-variant gated_delta_net --linear-attention-freq 4
		--linear-key-head-dim 12 --linear-value-head-dim 20 --linear-num-key-heads 2 --linear-num-value-heads 6"
)

# The family of a fixture's name: "llama-torch-tp2-pp2".
family_args() {
	local data=tests/fixtures/data
	# shellcheck disable=SC2206
	args=($common ${family[${1%%-*}]}
		--tokenizer-model "$data/tokenizer"
		--data-path 0.7 "$data/tales_text_document" 0.3 "$data/notes_text_document")
}

valid_args() {
	local words=" ${args[*]} "
	words=${words/ --split 90,10,0 / }
	# shellcheck disable=SC2206
	args=(${words/ --data-path / --train-data-path } --valid-data-path "$@" --full-validation)
}
