# One set of arguments for all launch files: Llama-3-8B in bf16. Sourced by mpirun.sh, torchrun.sh and srun.sh, whose own arguments come
# behind these, so that the last word is theirs. ARGUMENTS=FILE names another file, which fills the array `arguments` as this one does.
# shellcheck disable=SC2034
arguments=(
	--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
	--group-query-attention --num-query-groups 8 --normalization RMSNorm --norm-epsilon 1e-5 --swiglu --disable-bias-linear
	--position-embedding-type rope --rotary-base 500000 --untie-embeddings-and-output-weights
	--attention-dropout 0 --hidden-dropout 0
	--vocab-size 128256 --make-vocab-size-divisible-by 128 --tokenizer-type NullTokenizer
	--seq-length 8192 --max-position-embeddings 8192
	--bf16 --micro-batch-size 1 --global-batch-size 512
	--optimizer adam --adam-beta1 0.9 --adam-beta2 0.95 --weight-decay 0.1 --clip-grad 1.0
	--lr 3e-4 --min-lr 3e-5 --lr-decay-style cosine --lr-warmup-iters 2000 --train-iters 100000
	--save-interval 1000 --eval-interval 1000 --eval-iters 10 --log-interval 10 --log-throughput
)
