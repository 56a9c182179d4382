#include "trainer/data/train_data.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/bytes.h"
#include "formats/base/str.h"
#include "formats/dataset/gpt/rows_mock.h"
#include "formats/args/megatron_args.h"
#include "trainer/config/batch_schedule.h"
#include "trainer/config/value.h"

/* ---- which datasets ---- */

static int take_list(const struct mfs_arg_words *words, struct mfs_blend_args *args,
		     const struct mfs_blend_args **ret, struct mfs_error *err)
{
	*ret = args;
	return mfs_blend_args_parse(words->list, words->count, args, err);
}

static int take_lists(const struct mft_train_config *c, struct mfs_data_run *r,
		      struct mfs_error *err)
{
	int rc = 0;

	if (c->data_path.count)
		return take_list(&c->data_path, &r->all, &r->run.blend, err);
	for (int i = 0; i < MFS_SPLITS && !rc; i++)
		if (c->split_data_path[i].count)
			rc = take_list(&c->split_data_path[i], &r->split[i], &r->run.per_split[i],
				       err);
	return rc;
}

static bool has_lists(const struct mft_train_config *c)
{
	for (int i = 0; i < MFS_SPLITS; i++)
		if (c->split_data_path[i].count)
			return true;
	return c->data_path.count;
}

static int take_datasets(const struct mft_train_config *c, struct mfs_data_run *r,
			 struct mfs_error *err)
{
	const struct mfs_data_words files = {.data_args_path = c->data_args_path,
					     .per_split_data_args_path =
						     c->per_split_data_args_path};
	const bool named = files.data_args_path || files.per_split_data_args_path;

	if (c->mock_data) {
		if (has_lists(c) || named)
			return mfs_fail(err, -EINVAL,
					"--mock-data and paths of data exclude each other");
		return mfs_data_run_single("", r, err);
	}
	if (has_lists(c) && named)
		return mfs_fail(err, -EINVAL, "data paths and files of them exclude each other");
	if (named)
		return mfs_data_run_parse(&files, r, err);
	if (!has_lists(c))
		return mfs_fail(err, -ENODATA,
				"there is no data: --data-path or --train-data-path names some");
	return take_lists(c, r, err);
}

/* ---- how many samples, in which order ---- */

static uint64_t count_of(int64_t number)
{
	return number > 0 ? (uint64_t)number : 0;
}

static int take_samples(const struct mft_train_config *c, struct mfs_run *run,
			struct mfs_error *err)
{
	const struct mfs_run_length length = {
		.train_iters = mft_schedule_iterations(c),
		.train_samples = count_of(c->train_samples),
		.global_batch_size = count_of(c->global_batch_size),
		.eval_interval = c->eval_interval > 0 ? (uint64_t)c->eval_interval : 1,
		.eval_iters = count_of(c->eval_iters),
		.eval_batch_size = count_of(c->eval_global_batch_size),
		.start_eval_at_iter = count_of(c->start_eval_at_iter),
		.full_validation = c->full_validation,
	};
	int rc = mfs_run_samples(&length, run->samples, err);

	/* One evaluation is all that there is (training.py: get_train_valid_test_num_samples). */
	if (!rc && c->skip_train && !c->full_validation)
		run->samples[MFS_VALID] = run->samples[MFS_TEST];
	return rc;
}

static int take_order(const struct mft_train_config *c, struct mfs_run *run, struct mfs_error *err)
{
	if (c->seq_length < 1 || c->seq_length >= INT32_MAX)
		return mfs_fail(err, -EINVAL, "--seq-length is %lld: expected 1 to 2^31 - 2",
				(long long)c->seq_length);
	if (c->seed < 0 || c->seed > UINT32_MAX)
		return mfs_fail(err, -EINVAL, "--seed is %lld: expected 0 to 2^32 - 1",
				(long long)c->seed);
	run->seq_length = (uint32_t)c->seq_length;
	run->seed = (uint32_t)c->seed;
	run->rules = mfs_dataset_rules_default();
	run->multiple_validation_sets = c->multiple_validation_sets;
	if (c->mid_level_dataset_surplus >= 0)
		run->rules.surplus = c->mid_level_dataset_surplus;
	/* Megatron divides mock data evenly, whatever --split is (BlendedMegatronDatasetConfig). */
	if (run->blend)
		run->split = c->mock_data ? "1,1,1" : c->split;
	else if (c->split)
		return mfs_fail(err, -EINVAL,
				"--split divides what --data-path names: each split has a data "
				"path of its own");
	return take_samples(c, run, err);
}

/* ---- opening ---- */

/* Why a prefix of --data-path names no dataset, and what to give in its place. */
static int no_dataset(const char *prefix, struct mfs_error *err)
{
	const size_t len = strlen(prefix);
	struct stat st;

	if (mfs_str_ends(prefix, ".bin") || mfs_str_ends(prefix, ".idx"))
		return mfs_fail(err, -ENOENT,
				"'%s' is one of a dataset's two files: give the prefix of both, "
				"'%.*s'",
				prefix, (int)len - 4, prefix);
	if (stat(prefix, &st))
		return mfs_fail(err, -ENOENT, "there is no '%s.idx', and no HF dataset at '%s'",
				prefix, prefix);
	if (S_ISDIR(st.st_mode))
		return mfs_fail(err, -ENOENT,
				"'%s' is a directory that is no HF dataset: give the prefix of a "
				".bin and .idx in it, as '%s/NAME_text_document'",
				prefix, prefix);
	return mfs_fail(err, -ENOENT,
			"'%s' is a file, and its tokens are wanted: of text make a JSON list of "
			"token ids a line, as tokenizers' Tokenizer.from_file(\"tokenizer.json\")"
			".encode(text).ids gives it, pack them by `mcorefs pack PREFIX "
			"--vocab-size N --append-eod ID`, and give PREFIX",
			prefix);
}

static int resolve(void *arg, const char *prefix, const struct mfs_rows **ret,
		   struct mfs_error *err)
{
	struct mft_train_data *d = arg;
	int rc;

	if (d->mock) {
		*ret = d->mock;
		return 0;
	}
	rc = mfs_rows_open(&d->paths, prefix, ret, err);
	if (rc != -ENOENT)
		return rc;
	return no_dataset(prefix, err);
}

/* The tokenizer's own vocabulary counts, where it is known (gpt_dataset.py). */
static int open_mock(const struct mft_train_config *c, uint64_t vocab, struct mft_train_data *d,
		     struct mfs_error *err)
{
	const uint64_t own = c->model.vocab_size > 0 ? (uint64_t)c->model.vocab_size : vocab;

	if (c->eod == MFS_ABSENT)
		return mfs_fail(err, -EINVAL,
				"--mock-data needs a token that ends a document: no tokenizer says "
				"one");
	if (!own || own > INT32_MAX || c->eod > INT32_MAX)
		return mfs_fail(err, -EINVAL, "mock data of a vocabulary of %llu is impossible",
				(unsigned long long)own);
	return mfs_rows_mock((uint32_t)own, (int32_t)c->eod, &d->mock, err);
}

/* As in Megatron a tokenizer that was given gives way to the checkpoint's; NULL: none did. */
static const char *overruled_tokenizer(const struct mft_train_config *c)
{
	static const char flag[] = "--tokenizer-type:";
	const struct mft_flag_other *o = c->values ? c->values->overruled : NULL;

	while (o && strncmp(o->name, flag, strlen(flag)) != 0)
		o = o->next;
	return o ? o->name : NULL;
}

/* As in Megatron samples go round: there are as many as the run asks for. */
static int open_sft(const struct mft_train_config *c, enum mfs_split split, uint64_t vocab,
		    const struct mfs_run *run, struct mft_train_data *d, struct mfs_error *err)
{
	const struct mft_sft_config s = {
		.shares = c->data_path.count ? (c->split ? c->split : MFS_SPLIT_DEFAULT) : NULL,
		.split = split,
		.tokenizer =
			mfs_str_is(c->tokenizer_type, "SFTTokenizer") ? c->tokenizer_model : NULL,
		.overruled = overruled_tokenizer(c),
		.format = c->sft_tokenizer_prompt_format,
		.answers_only = c->sft_answer_only_loss,
		.packs = mfs_str_is(c->sft_packing, "first_fit_decreasing"),
		.length = (uint32_t)c->seq_length,
		.multiple =
			c->context_parallel_size > 1 ? 2 * (uint32_t)c->context_parallel_size : 1,
		.seed = (uint32_t)c->seed,
		.vocab = vocab,
		.now = c->sft_now,
	};
	int rc = mft_sft_blend_open(&s, run, &d->sft, err);

	if (!rc)
		d->total = split == MFS_VALID && c->full_validation ? mft_sft_blend_count(d->sft)
								    : mft_sft_blend_total(d->sft);
	return rc;
}

static int open_sampler(const struct mft_train_config *c, uint64_t consumed,
			struct mft_train_data *d, struct mfs_error *err)
{
	struct mfs_sampler_config s = {.total = d->total,
				       .micro_batch = d->micro,
				       .ranks = d->ranks,
				       .no_sharding = c->no_data_sharding,
				       .consumed = consumed};
	int rc = mfs_sampler_type_of(c->dataloader_type ? c->dataloader_type : "single", &s.type,
				     err);

	if (!rc)
		rc = mfs_sampler_new(&s, &d->sampler, err);
	if (!rc)
		d->microbatches = s.type == MFS_SAMPLER_CYCLIC
					  ? UINT64_MAX
					  : (s.total - consumed) / ((uint64_t)d->micro * d->ranks);
	return rc;
}

/* What Megatron builds no loader for. */
static int check_wanted(const struct mft_train_config *c, enum mfs_split split,
			const struct mfs_run *run, struct mfs_error *err)
{
	if (split == MFS_VALID && c->eval_interval == MFS_ABSENT)
		return mfs_fail(err, -ENODATA, "no validation was asked for (--eval-interval)");
	if (!run->samples[split])
		return mfs_fail(err, -ENODATA, "the %s split is asked for no sample",
				mfs_split_name(split));
	return 0;
}

/* Which samples there are, without a look at them. */
static int take_run(const struct mft_train_config *config, enum mfs_split split,
		    struct mfs_data_run *ret, struct mfs_error *err)
{
	int rc = take_datasets(config, ret, err);

	if (!rc)
		rc = take_order(config, &ret->run, err);
	return rc ? rc : check_wanted(config, split, &ret->run, err);
}

int mft_train_data_sets(const struct mft_train_config *config, enum mfs_split split, uint32_t *ret,
			struct mfs_error *err)
{
	struct mfs_data_run r = {0};
	const int rc = take_run(config, split, &r, err);

	if (!rc)
		*ret = mfs_run_sets(&r.run, split);
	mfs_data_run_release(&r);
	return rc;
}

int mft_train_data_open(const struct mft_train_config *config, enum mfs_split split, uint32_t set,
			uint64_t consumed, uint32_t micro, uint64_t vocab,
			struct mft_train_data *ret, struct mfs_error *err)
{
	struct mfs_run_set own;
	uint64_t batch; /* samples of a microbatch of each process */
	int rc;

	*ret = (struct mft_train_data){
		.micro = micro,
		.rank = (uint32_t)config->data_parallel_rank,
		.ranks = config->data_parallel_size > 0 ? (uint32_t)config->data_parallel_size : 1,
	};
	if (!micro)
		return mfs_fail(err, -EINVAL, "a microbatch needs a sample");
	rc = take_run(config, split, &ret->run, err);
	if (!rc && config->mock_data)
		rc = open_mock(config, vocab, ret, err);
	if (rc)
		return rc;
	mfs_run_set(&ret->run.run, split, set, &own);
	if (config->sft) {
		rc = open_sft(config, split, vocab, &own.run, ret, err);
	} else {
		rc = mfs_samples_new(&own.run, split, resolve, ret, &ret->samples, err);
		if (!rc)
			rc = mfs_samples_check(ret->samples, err);
		ret->total = rc ? 0 : mfs_samples_count(ret->samples);
	}
	if (rc)
		return rc;
	if (split == MFS_VALID && config->full_validation) {
		batch = (uint64_t)micro * ret->ranks;
		ret->microbatches = (ret->total + batch - 1) / batch;
		return 0;
	}
	return open_sampler(config, consumed, ret, err);
}

void mft_train_data_release(struct mft_train_data *d)
{
	mfs_sampler_free(d->sampler);
	mfs_samples_free(d->samples);
	mft_sft_blend_free(d->sft);
	mfs_rows_free(d->mock);
	mfs_rows_table_release(&d->paths);
	mfs_data_run_release(&d->run);
}

static int draw(struct mft_train_data *d, uint64_t microbatch, uint64_t *ret, uint32_t *ret_count,
		struct mfs_error *err)
{
	const uint64_t total = d->total;
	uint64_t first;

	*ret_count = d->micro;
	if (d->sampler)
		return mfs_sampler_draw(d->sampler, microbatch, d->rank, ret, err);
	first = (microbatch % d->microbatches * d->ranks + d->rank) * d->micro;
	*ret_count = first < total ? (uint32_t)mfs_min_u64(d->micro, total - first) : 0;
	for (uint32_t i = 0; i < d->micro; i++)
		ret[i] = mfs_min_u64(first + i, total - 1);
	return 0;
}

int mft_train_data_draw(struct mft_train_data *d, uint64_t microbatch, uint64_t *ret,
			uint32_t *ret_count, struct mfs_error *err)
{
	int rc = draw(d, microbatch, ret, ret_count, err);

	for (uint32_t i = 0; d->sft && i < d->micro && !rc; i++)
		rc = mft_sft_blend_find(d->sft, ret[i], &ret[i], err);
	return rc;
}
