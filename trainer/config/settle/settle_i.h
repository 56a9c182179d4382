/* What the files settle*.c share: questions of the arguments, and their rules. For them alone. */
#ifndef MFT_TRAINER_CONFIG_SETTLE_I_H
#define MFT_TRAINER_CONFIG_SETTLE_I_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "trainer/config/config.h"
#include "trainer/config/dests.h"
#include "trainer/config/value.h"

#define LARGEST (1ll << 31) /* the limit of any size: a product of two fits into int64_t */

struct settle {
	struct mft_train_config *c;
	struct mft_flag_values *v;
	struct mfs_error *err;
};

/* ---- questions ---- */

static inline bool is(const struct settle *s, enum mft_dest dest)
{
	return mft_flag_truth(s->v, name_of(dest));
}

static inline bool has(const struct settle *s, enum mft_dest dest)
{
	return !mft_flag_is_none(s->v, name_of(dest));
}

static inline int64_t number(const struct settle *s, enum mft_dest dest)
{
	return mft_flag_number(s->v, name_of(dest), MFS_ABSENT);
}

static inline const char *text(const struct settle *s, enum mft_dest dest)
{
	return mft_flag_text(s->v, name_of(dest));
}

/* The flag of a dest, for messages. */
static inline const char *flag(enum mft_dest dest, char spelling[MFT_FLAG_SPELLING])
{
	bool on;

	mft_flag_spelling(mft_flag_at(mft_flag_of_dest(name_of(dest))), 0, spelling, &on);
	return spelling;
}

/* The default of a number that was not given. */
static inline void otherwise(struct settle *s, enum mft_dest dest, int64_t value)
{
	if (!has(s, dest))
		mft_flag_set_number(s->v, name_of(dest), value);
}

static inline int require(struct settle *s, enum mft_dest dest)
{
	char spelling[MFT_FLAG_SPELLING];

	return has(s, dest) ? 0 : mfs_fail(s->err, -ENODATA, "%s is missing", flag(dest, spelling));
}

/* Where it is given, it is one of these. */
static inline int from_to(struct settle *s, enum mft_dest dest, int64_t least, int64_t most)
{
	const int64_t found = number(s, dest);
	char spelling[MFT_FLAG_SPELLING];

	if (!has(s, dest) || (found >= least && found <= most))
		return 0;
	if (found > most)
		return mfs_fail(s->err, -EINVAL, "%s: expected at most %lld, found %lld",
				flag(dest, spelling), (long long)most, (long long)found);
	return mfs_fail(s->err, -EINVAL, "%s: expected %s, found %lld", flag(dest, spelling),
			least == 1 ? "a positive number" : "0 or more", (long long)found);
}

/* A size, which others are multiplied with. */
static inline int at_least(struct settle *s, enum mft_dest dest, int64_t least)
{
	return from_to(s, dest, least, LARGEST);
}

static inline int exclude(struct settle *s, enum mft_dest one, enum mft_dest other)
{
	char a[MFT_FLAG_SPELLING], b[MFT_FLAG_SPELLING];

	return has(s, one) && has(s, other)
		       ? mfs_fail(s->err, -EINVAL, "%s and %s exclude each other", flag(one, a),
				  flag(other, b))
		       : 0;
}

/* ---- rules, in the order in which settle.c asks for them ---- */

/* Each returns 0 or a negative errno value with a sentence in s->err. */

/* settle_model.c */
int mft_settle_sizes(struct settle *s);
int mft_settle_layers(struct settle *s);
int mft_settle_experts(struct settle *s);
/* settle_optim.c */
int mft_settle_precision(struct settle *s);
int mft_settle_fp8(struct settle *s);
int mft_settle_optimizer(struct settle *s);
int mft_settle_qk_clip(struct settle *s);
/* settle_parallel.c */
int mft_settle_parallel(struct settle *s);
/* settle_pipeline.c */
int mft_settle_pipeline(struct settle *s);
/* settle_batch.c */
int mft_settle_batches(struct settle *s);
int mft_settle_length(struct settle *s);
/* settle_optim.c */
int mft_settle_rates(struct settle *s);
int mft_settle_decay(struct settle *s);
int mft_settle_memory(struct settle *s);
/* settle_sharding.c */
int mft_settle_sharding(struct settle *s);
/* settle_parallel.c: what follows from how many there are */
int mft_settle_process(struct settle *s);
/* settle_model.c: with the sizes of every dimension known */
int mft_settle_vocab(struct settle *s);
/* settle_rl.c: with the batch and the intervals known */
int mft_settle_rl(struct settle *s);
/* settle_batch.c: --step-batch-size-schedule and --rampup-batch-size; the fields are filled */
int mft_settle_batch_steps(struct settle *s);
/* settle_sharding.c: config->sharding and the gradients' type; the fields are filled */
int mft_settle_fill_sharding(struct settle *s);
/* settle_pattern.c: what follows from --hybrid-layer-pattern, before all else */
int mft_settle_pattern(struct settle *s);
/* settle_model.c: config->model */
int mft_settle_read_model(struct settle *s);

/* ---- for settle_pipeline.c ---- */

/* settle_pattern.c: the same of --hybrid-layer-pattern. */
int mft_settle_pattern_stages(struct settle *s);
/* settle_stages.c: model chunks that are no equal shares. The layout says how many there are; where
 * the embedding or the loss counts as a layer, that is known. */
int mft_settle_layout(struct settle *s);
int mft_settle_accounts(struct settle *s);

/* ---- for settle_batch.c ---- */

/* settle_pipeline.c: checks that the stages' model chunks can take turns with so many microbatches
 * of each process. name: the flag that they follow from. */
int mft_settle_microbatches(const struct settle *s, const char *name, uint64_t count);

#endif
