/* The model's arguments: sizes, layers, experts, the vocabulary (arguments.py: validate_args). */
#include <math.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/str.h"
#include "trainer/config/flags_source.h"
#include "trainer/config/settle/settle_i.h"
#include "trainer/config/settle/settle_vocab.h"

/* One may be given by the other's name. */
static int settle_pair(struct settle *s, enum mft_dest dest, enum mft_dest encoder)
{
	int r = exclude(s, dest, encoder);

	if (r)
		return r;
	*mft_flag_slot(s->v, name_of(has(s, dest) ? encoder : dest)) =
		*mft_flag_get(s->v, name_of(has(s, dest) ? dest : encoder));
	return require(s, dest);
}

static int settle_heads(struct settle *s)
{
	const int64_t hidden = number(s, HIDDEN_SIZE), heads = number(s, NUM_ATTENTION_HEADS);

	if (!has(s, KV_CHANNELS)) {
		if (hidden % heads)
			return mfs_fail(s->err, -EINVAL,
					"--hidden-size: expected a multiple of "
					"--num-attention-heads %lld, or --kv-channels; found %lld",
					(long long)heads, (long long)hidden);
		mft_flag_set_number(s->v, name_of(KV_CHANNELS), hidden / heads);
	}
	if (is(s, MULTI_LATENT_ATTENTION) && is(s, GROUP_QUERY_ATTENTION))
		return mfs_fail(s->err, -EINVAL,
				"--group-query-attention and --multi-latent-attention exclude each "
				"other");
	if (is(s, GROUP_QUERY_ATTENTION) && heads % number(s, NUM_QUERY_GROUPS))
		return mfs_fail(s->err, -EINVAL,
				"--num-query-groups: expected a divisor of --num-attention-heads "
				"%lld, found %lld",
				(long long)heads, (long long)number(s, NUM_QUERY_GROUPS));
	return 0;
}

/* arguments.py: validate_args; with --ffn-multiple-of as Llama has it. */
static int64_t usual_mlp(const struct settle *s, int64_t hidden)
{
	const int64_t multiple = number(s, FFN_MULTIPLE_OF);
	const double gated = 4 * (double)hidden * 2 / 3;
	int64_t size;

	if (!is(s, SWIGLU))
		return 4 * hidden;
	if (multiple == MFS_ABSENT)
		return (int64_t)(gated / 64) * 64;
	/* Numbers beyond LARGEST are refused later. */
	size = (int64_t)fmin((double)(int64_t)gated *
				     mft_flag_real(s->v, name_of(FFN_MULTIPLIER), 1),
			     2.0 * LARGEST);
	return (size + multiple - 1) / multiple * multiple;
}

static int check_mlp(struct settle *s)
{
	const double factor = mft_flag_real(s->v, name_of(FFN_MULTIPLIER), 1);

	if (!(factor > 0))
		return mfs_fail(s->err, -EINVAL,
				"--ffn-multiplier: expected a number above 0, found %g", factor);
	return at_least(s, FFN_MULTIPLE_OF, 1);
}

int mft_settle_sizes(struct settle *s)
{
	static const enum mft_dest sizes[] = {NUM_LAYERS,
					      HIDDEN_SIZE,
					      NUM_ATTENTION_HEADS,
					      MAX_POSITION_EMBEDDINGS,
					      KV_CHANNELS,
					      SEQ_LENGTH,
					      FFN_HIDDEN_SIZE,
					      NUM_QUERY_GROUPS,
					      VOCAB_SIZE,
					      Q_LORA_RANK,
					      PADDED_VOCAB_SIZE,
					      MOE_FFN_HIDDEN_SIZE,
					      KV_LORA_RANK,
					      QK_HEAD_DIM,
					      V_HEAD_DIM,
					      QK_POS_EMB_HEAD_DIM,
					      ROTARY_BASE,
					      MOE_ROUTER_TOPK,
					      MAKE_VOCAB_SIZE_DIVISIBLE_BY};
	int64_t hidden;
	int r = settle_pair(s, NUM_LAYERS, ENCODER_NUM_LAYERS);

	if (!r)
		r = require(s, HIDDEN_SIZE);
	if (!r)
		r = require(s, NUM_ATTENTION_HEADS);
	if (!r)
		r = settle_pair(s, SEQ_LENGTH, ENCODER_SEQ_LENGTH);
	if (!r)
		r = require(s, MAX_POSITION_EMBEDDINGS);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(sizes) && !r; i++)
		r = at_least(s, sizes[i], 1);
	if (r)
		return r;
	hidden = number(s, HIDDEN_SIZE);
	r = check_mlp(s);
	if (r)
		return r;
	otherwise(s, FFN_HIDDEN_SIZE, usual_mlp(s, hidden));
	if (number(s, FFN_HIDDEN_SIZE) < 1)
		return mfs_fail(s->err, -ENODATA,
				"--ffn-hidden-size is missing: of --hidden-size %lld an MLP would "
				"have none",
				(long long)hidden);
	if (number(s, FFN_HIDDEN_SIZE) > LARGEST)
		return mfs_fail(s->err, -EINVAL,
				"--hidden-size: expected a smaller one, found %lld: an MLP would "
				"have %lld, and at most %lld are possible",
				(long long)hidden, (long long)number(s, FFN_HIDDEN_SIZE),
				(long long)LARGEST);
	if (number(s, MAX_POSITION_EMBEDDINGS) < number(s, SEQ_LENGTH))
		return mfs_fail(s->err, -EINVAL,
				"--max-position-embeddings: expected at least --seq-length %lld, "
				"found %lld",
				(long long)number(s, SEQ_LENGTH),
				(long long)number(s, MAX_POSITION_EMBEDDINGS));
	return settle_heads(s);
}

int mft_settle_layers(struct settle *s)
{
	const bool rope = mfs_str_is(text(s, POSITION_EMBEDDING_TYPE), "rope");

	if (is(s, ADD_BIAS_LINEAR))
		mft_flag_set_truth(s->v, name_of(ADD_QKV_BIAS), true);
	else
		mft_flag_set_truth(s->v, name_of(BIAS_GELU_FUSION), false);
	if (!rope)
		mft_flag_set_truth(s->v, name_of(APPLY_ROPE_FUSION), false);
	if (!rope && !is(s, ADD_POSITION_EMBEDDING))
		return mfs_fail(s->err, -EINVAL,
				"--no-position-embedding: expected --position-embedding-type rope "
				"with it, or --position-embedding-type none instead");
	if (is(s, USE_MUP) && has(s, MTP_NUM_LAYERS) && number(s, MTP_NUM_LAYERS) > 0)
		return mfs_fail(s->err, -ENOTSUP,
				"--use-mup with --mtp-num-layers is not supported; leave one of "
				"them out");
	if (is(s, APPLY_QUERY_KEY_LAYER_SCALING))
		mft_flag_set_truth(s->v, name_of(ATTENTION_SOFTMAX_IN_FP32), true);
	return 0;
}

/* A list of one is its item. */
static void unlist(struct settle *s, enum mft_dest dest)
{
	struct mft_flag_value *v = mft_flag_slot(s->v, name_of(dest));

	if (v->type == MFT_IS_LIST && v->count == 1)
		*v = v->items[0];
}

/* The words of --moe-router-load-balancing-type. */
static const char *const aux_losses[MFT_AUX_LOSSES] = {"aux_loss", "seq_aux_loss",
						       "global_aux_loss"};

/* router.py: get_aux_loss_coeff. A line has the names that training.py: training_log looks for with
 * Python's `in`: words of a list, or parts of a word. */
static void settle_aux_loss(struct settle *s, const char *kind, double coeff, bool listed)
{
	struct mft_train_config *c = s->c;

	for (int i = 0; i < MFT_AUX_LOSSES; i++) {
		const bool same = mfs_str_is(kind, aux_losses[i]);

		if (same && c->moe_aux_loss_coeffs[i] == 0)
			c->moe_aux_loss_coeffs[i] = coeff;
		c->moe_logs_aux_loss[i] |= same || (!listed && strstr(kind, aux_losses[i]));
	}
}

/* router.py: TopKRouter.routing, sinkhorn_load_balancing. In a list Megatron looks for losses
 * alone, and would do nothing for this word. */
static int settle_sinkhorn(struct settle *s, const struct mft_flag_value *kinds)
{
	struct mft_train_config *c = s->c;

	c->moe_sinkhorn = kinds->type == MFT_IS_TEXT && mfs_str_is(kinds->text, "sinkhorn");
	for (size_t i = 0; kinds->type == MFT_IS_LIST && i < kinds->count; i++)
		if (mfs_str_is(kinds->items[i].text, "sinkhorn"))
			return mfs_fail(
				s->err, -EINVAL,
				"--moe-router-load-balancing-type: expected sinkhorn alone, "
				"found %zu words",
				kinds->count);
	if (c->moe_sinkhorn && mft_flag_real(s->v, name_of(MOE_AUX_LOSS_COEFF), 0) != 0)
		return mfs_fail(s->err, -EINVAL,
				"--moe-aux-loss-coeff: Sinkhorn routing does not support aux loss, "
				"expected 0 with --moe-router-load-balancing-type sinkhorn, "
				"found %g",
				mft_flag_real(s->v, name_of(MOE_AUX_LOSS_COEFF), 0));
	return 0;
}

static int settle_aux_losses(struct settle *s)
{
	int rc;
	const struct mft_flag_value *kinds =
		mft_flag_get(s->v, name_of(MOE_ROUTER_LOAD_BALANCING_TYPE));
	const struct mft_flag_value *coeffs = mft_flag_get(s->v, name_of(MOE_AUX_LOSS_COEFF));
	const size_t count = kinds->type == MFT_IS_LIST ? kinds->count : 1;

	if (count != (coeffs->type == MFT_IS_LIST ? coeffs->count : 1))
		return mfs_fail(s->err, -EINVAL,
				"--moe-aux-loss-coeff: expected as many as "
				"--moe-router-load-balancing-type has words, %zu, found %zu",
				count, coeffs->type == MFT_IS_LIST ? coeffs->count : 1);
	if (kinds->type == MFT_IS_TEXT)
		settle_aux_loss(s, kinds->text, mft_flag_real(s->v, name_of(MOE_AUX_LOSS_COEFF), 0),
				false);
	rc = settle_sinkhorn(s, kinds);
	for (size_t i = 0; kinds->type == MFT_IS_LIST && i < count; i++)
		settle_aux_loss(s, kinds->items[i].text, coeffs->items[i].real, true);
	return rc;
}

int mft_settle_experts(struct settle *s)
{
	int rc;
	double factor; /* below 0: none, as in transformer_config.py: __post_init__ */

	if (number(s, NUM_EXPERTS) == 0)
		mft_flag_set_none(s->v, name_of(NUM_EXPERTS));
	unlist(s, MOE_ROUTER_LOAD_BALANCING_TYPE);
	unlist(s, MOE_AUX_LOSS_COEFF);
	if (!has(s, NUM_EXPERTS))
		return 0;
	otherwise(s, MOE_FFN_HIDDEN_SIZE, number(s, FFN_HIDDEN_SIZE));
	rc = settle_aux_losses(s);
	if (rc)
		return rc;
	/* transformer_config.py: __post_init__. Here it is always alltoall. */
	if (is(s, MOE_SHARED_EXPERT_OVERLAP) &&
	    mfs_str_is(text(s, MOE_TOKEN_DISPATCHER_TYPE), "allgather"))
		return mfs_fail(s->err, -EINVAL,
				"--moe-shared-expert-overlap: expected --moe-token-dispatcher-type "
				"alltoall or flex with it, found allgather");
	/* shared_experts.py: SharedExpertMLP.__init__. */
	if (is(s, ADD_BIAS_LINEAR) && has(s, MOE_SHARED_EXPERT_INTERMEDIATE_SIZE))
		return mfs_fail(s->err, -EINVAL,
				"--moe-shared-expert-intermediate-size: bias is not supported in "
				"the shared experts, expected --disable-bias-linear with it");
	factor = mft_flag_real(s->v, name_of(MOE_EXPERT_CAPACITY_FACTOR), -1);
	if (factor == 0)
		return mfs_fail(s->err, -EINVAL,
				"--moe-expert-capacity-factor: expected a number above 0, or below "
				"it for none, found 0: experts would take no tokens");
	if (is(s, MOE_PAD_EXPERT_INPUT_TO_CAPACITY) && factor < 0)
		return mfs_fail(s->err, -EINVAL,
				"--moe-pad-expert-input-to-capacity: expected "
				"--moe-expert-capacity-factor with it");
	return at_least(s, NUM_EXPERTS, 1);
}

/* The embedding's rows. Processes have equal shares of them. */
static int64_t rows_of(const struct settle *s, int64_t tokens, int64_t tp)
{
	const int64_t extra = number(s, EXTRA_VOCAB_ROWS);
	const int64_t multiple =
		tp * (extra == MFS_ABSENT ? number(s, MAKE_VOCAB_SIZE_DIVISIBLE_BY) : 1);

	if (extra != MFS_ABSENT)
		tokens += extra;
	else if (!is(s, PAD_VOCAB_SIZE))
		return tokens;
	return (tokens + multiple - 1) / multiple * multiple;
}

int mft_settle_vocab(struct settle *s)
{
	struct mft_vocab_found found;
	const int64_t tp = number(s, TENSOR_MODEL_PARALLEL_SIZE);
	const bool ends =
		is(s, RESET_POSITION_IDS) || is(s, RESET_ATTENTION_MASK) || is(s, EOD_MASK_LOSS);
	int r = mft_vocab_find(s->v, &found, s->err);

	if (r)
		return r;
	r = from_to(s, EXTRA_VOCAB_ROWS, 0, LARGEST);
	if (r)
		return r;
	if (!has(s, PADDED_VOCAB_SIZE))
		mft_flag_set_number(s->v, name_of(PADDED_VOCAB_SIZE), rows_of(s, found.size, tp));
	if (found.size > number(s, PADDED_VOCAB_SIZE))
		return mfs_fail(s->err, -EINVAL,
				"--padded-vocab-size: expected at least the %lld tokens of the "
				"vocabulary, found %lld",
				(long long)found.size, (long long)number(s, PADDED_VOCAB_SIZE));
	if (number(s, PADDED_VOCAB_SIZE) % tp)
		return mfs_fail(s->err, -EINVAL,
				"--padded-vocab-size: expected a multiple of "
				"--tensor-model-parallel-size %lld, found %lld",
				(long long)tp, (long long)number(s, PADDED_VOCAB_SIZE));
	if (ends && found.eod == MFS_ABSENT)
		return mfs_fail(s->err, -ENODATA,
				"the token that ends a document is not known, which "
				"--reset-position-ids, --reset-attention-mask and --eod-mask-loss "
				"need: expected --eod-id, or a tokenizer that says it");
	s->c->model.vocab_size = found.size;
	s->c->eod = found.eod;
	s->c->pad = found.pad;
	s->c->pad_unknown = found.pad_unknown;
	s->c->pad_ambiguous = found.pad_ambiguous;
	return at_least(s, PADDED_VOCAB_SIZE, 1);
}

/* A command line has the reader that a checkpoint's arguments have: what is saved reads as what was
 * trained (test_train_args: saved_is_trained). */
int mft_settle_read_model(struct settle *s)
{
	const int64_t vocab_size = s->c->model.vocab_size;
	const struct mfs_args_source given = mft_args_of_flags(s->v);
	int r = mfs_args_read(&given, &s->c->arena, &s->c->model, s->err);

	if (r)
		return r;
	s->c->model.vocab_size = vocab_size;
	if (s->c->adopted.taken) {
		s->c->model.beta_fast = s->c->adopted.beta_fast;
		s->c->model.beta_slow = s->c->adopted.beta_slow;
		s->c->model.original_max_position_embeddings =
			s->c->adopted.original_max_position_embeddings;
	}
	/* A person who gives it means it, as on Megatron's main branch. */
	if (mft_flag_is_given(s->v, name_of(ROPE_SCALING_FACTOR)))
		s->c->model.rope_scaling_factor =
			mft_flag_real(s->v, name_of(ROPE_SCALING_FACTOR), MFS_ROPE_SCALING_FACTOR);
	return 0;
}
