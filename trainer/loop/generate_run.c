/*
 * --generate: the model of a checkpoint goes on with prompts. It is loaded as a run would load it,
 * into any layout that generates, but without gradients and an optimizer.
 */
#include "trainer/loop/generate_run.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/base/str.h"
#include "formats/hf/hf_json.h"
#include "formats/tokenizer/read/tokenizer_open.h"
#include "trainer/config/value.h"
#include "trainer/generate/answers.h"
#include "trainer/generate/generate.h"
#include "trainer/generate/prompt_list.h"
#include "trainer/loop/stops.h"
#include "trainer/loop/train.h"
#include "trainer/loop/trainer_i.h"

struct generation {
	struct mft_trainer t;
	struct mft_load *load;
	bool own_tokenizer;		 /* the command line names it */
	struct mfs_tokenizer *tokenizer; /* NULL: there is none */
	char dir[PATH_MAX];		 /* the tokenizer's; empty: it is a file */
	struct mft_prompt_list prompts;
	struct mft_sampler *sampler;
	struct mft_response *responses;
	uint32_t *stops;
	size_t stop_count;
	/* a stream of the one prompt's text */
	struct mfs_decoder *decoder;
	bool failed; /* it could not be written */
};

/* ---- the model ---- */

/* What follows from --generate: nothing is trained, and the checkpoint says what its model is. */
static void imply(struct mft_train_config *c)
{
	static const char *const on[] = {"skip_train", "finetune", "no_load_optim", "no_load_rng",
					 "use_checkpoint_args"};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(on); i++)
		mft_flag_set_truth(c->values, on[i], true);
	mft_flag_set_number(c->values, "micro_batch_size", 1);
	mft_flag_set_number(c->values, "seq_length", 1); /* if the checkpoint has none */
	c->skip_train = c->finetune = c->no_load_optim = c->use_checkpoint_args = true;
}

static int open_model(struct generation *g, struct mft_train_config *config,
		      const struct mft_launch *launch, struct mfs_error *err)
{
	struct mft_trainer *t = &g->t;
	int rc;

	if (!config->load && !config->pretrained_checkpoint)
		return mfs_fail(err, -EINVAL, "--generate: expected --load DIR");
	g->own_tokenizer = mft_flag_is_given(config->values, "tokenizer_model");
	/* As in Megatron a checkpoint's would have the last word. */
	if (g->own_tokenizer)
		mft_flag_set_truth(config->values, "use_tokenizer_model_from_checkpoint_args",
				   false);
	imply(config);
	rc = mft_load_await(config, launch, &g->load, err);
	if (!rc && !g->load)
		rc = mfs_fail(err, -ENODATA, "--generate: there is no checkpoint in '%s'",
			      config->load);
	if (!rc)
		rc = mft_load_args(g->load, config, err);
	if (!rc)
		rc = mft_trainer_open_processes(t, launch, NULL, err);
	if (!rc)
		rc = mft_load_agree(&g->load, config, &t->parallel, err);
	return rc ? rc : mft_params_new(config, &t->parallel, &t->params, err);
}

static int load_model(struct generation *g, struct mfs_error *err)
{
	struct mft_trainer *t = &g->t;
	bool optimizer;
	int rc;

	mft_params_plan_weights(t->params, &t->memory, &t->places);
	rc = mft_memory_place(&t->memory, t->backend, t->device, err);
	if (rc)
		return rc;
	mft_params_place(t->params, &t->places, &t->memory);
	t->backend->device->zero(t->ctx, t->memory.base, t->memory.total);
	return mft_load_state(g->load, t->config, t->params, t->backend, t->device, t->ctx,
			      &t->progress, &optimizer, err);
}

/* ---- the tokenizer ---- */

static bool is_directory(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* -ENOENT: there is no tokenizer. */
static int open_tokenizer_at(struct generation *g, const char *path, struct mfs_error *err)
{
	const int rc = mfs_tokenizer_open(path, &g->tokenizer, err);

	if (!rc && is_directory(path))
		snprintf(g->dir, sizeof(g->dir), "%s", path);
	return rc;
}

/* That of the command line, or the checkpoint's. What a checkpoint's arguments name may be of
 * another host. */
static int open_tokenizer(struct generation *g, struct mfs_error *err)
{
	const struct mft_train_config *c = g->t.config;
	char next[PATH_MAX];
	int rc;

	if (g->own_tokenizer)
		return open_tokenizer_at(g, c->tokenizer_model, err);
	snprintf(next, sizeof(next), "%s/tokenizer", mft_load_dir(g->load));
	rc = open_tokenizer_at(g, next, err);
	if (rc == -ENOENT)
		rc = open_tokenizer_at(g, mft_load_dir(g->load), err);
	if (rc == -ENOENT && c->tokenizer_model)
		rc = open_tokenizer_at(g, c->tokenizer_model, err);
	return rc == -ENOENT ? 0 : rc;
}

/* ---- tokens that end an answer ---- */

static int find_stops(struct generation *g, struct mfs_error *err)
{
	const struct mft_stops_of of = {{mft_load_dir(g->load), g->dir},
					g->t.config->eod,
					g->tokenizer ? mfs_tokenizer_roles(g->tokenizer)->eos
						     : MFS_ABSENT};

	return mft_stops_find(&of, &g->stops, &g->stop_count, err);
}

/* ---- answers ---- */

static bool prints_text(const struct generation *g)
{
	const char *format = g->t.config->generate.format;

	return format ? mfs_str_is(format, "text") : g->prompts.count == 1 && g->tokenizer;
}

static bool streams(const struct generation *g)
{
	return g->t.speaks && prints_text(g) && g->prompts.count == 1 &&
	       (g->t.config->generate.stream || isatty(STDOUT_FILENO));
}

static void write_out(struct generation *g, struct mfs_buf *text)
{
	g->failed |= text->failed || fwrite(text->data, 1, text->len, stdout) != text->len ||
		     fflush(stdout);
	text->len = 0;
}

/* Of a stream: what is certain of the text so far. */
static void told(void *arg, size_t number, const struct mft_response *r)
{
	struct generation *g = arg;
	struct mfs_buf text = {0};
	struct mfs_error err;

	(void)number;
	if (r->finish != MFT_FINISH_STOP)
		g->failed |= mfs_decode(g->decoder, &r->tokens[r->count - 1], 1, &text, &err) != 0;
	write_out(g, &text);
	mfs_buf_release(&text);
}

static int print_one(struct generation *g, size_t i, struct mfs_buf *out, struct mfs_error *err)
{
	if (g->decoder)
		return mfs_decode_end(g->decoder, out, err);
	if (prints_text(g))
		return mft_answer_text(g->tokenizer, &g->responses[i], out, err);
	return mft_answer_line(&g->prompts, i, g->tokenizer, &g->responses[i],
			       g->t.config->generate.log_probs, out, err);
}

static int print(struct generation *g, struct mfs_error *err)
{
	struct mfs_buf out = {0};
	int rc = 0;

	for (size_t i = 0; i < g->prompts.count && !rc && g->t.speaks; i++) {
		rc = print_one(g, i, &out, err);
		if (prints_text(g))
			mfs_buf_adds(&out, "\n");
		write_out(g, &out);
	}
	mfs_buf_release(&out);
	if (!rc && g->failed)
		rc = mfs_fail(err, -EIO, "standard output: it could not be written to");
	return rc;
}

/* ---- all of it ---- */

/* Learned positions end; others go on. */
static uint32_t longest(const struct generation *g)
{
	const struct mfs_megatron_args *a = &g->t.config->model;
	uint64_t most = 0;

	for (size_t i = 0; i < g->prompts.count; i++)
		most = g->prompts.list[i].count > most ? g->prompts.list[i].count : most;
	most += (uint64_t)g->t.config->generate.tokens;
	if (mfs_str_is(a->position_embedding_type, "learned_absolute") &&
	    most > (uint64_t)a->max_position_embeddings)
		most = (uint64_t)a->max_position_embeddings;
	return most < INT32_MAX ? (uint32_t)most : INT32_MAX;
}

static int open_sampler(struct generation *g, struct mfs_error *err)
{
	const struct mft_generate_config *c = &g->t.config->generate;
	const uint64_t slots =
		(uint64_t)c->slots < g->prompts.count ? (uint64_t)c->slots : g->prompts.count;

	if (c->tokens < 1 || c->tokens > INT32_MAX)
		return mfs_fail(err, -EINVAL,
				"--num-tokens-to-generate: expected 1 to %d, found %lld", INT32_MAX,
				(long long)c->tokens);
	if (c->slots < 1)
		return mfs_fail(err, -EINVAL, "--generate-slots: expected at least 1, found %lld",
				(long long)c->slots);
	if (prints_text(g) && !g->tokenizer)
		return mfs_fail(err, -ENODATA,
				"--generate-format text: there is no tokenizer with the "
				"checkpoint; expected --tokenizer-model, or jsonl");
	g->responses = calloc(g->prompts.count, sizeof(*g->responses));
	if (!g->responses)
		return mfs_fail_nomem(err);
	return mft_sampler_new(g->t.config, g->t.params, g->t.backend, g->t.device, &g->t.parallel,
			       (uint32_t)slots, longest(g), &g->sampler, err);
}

/* Of processes that have the whole model several times, the first ones answer. */
static int answer(struct generation *g, struct mfs_error *err)
{
	const struct mft_generate_config *c = &g->t.config->generate;
	const struct mft_sampling how = {
		.temperature = c->temperature,
		.top_p = c->top_p == 0 ? 1 : c->top_p,
		.top_k = c->top_k,
		.max_tokens = (uint32_t)c->tokens,
		.stops = g->stops,
		.stop_count = g->stop_count,
	};
	const size_t count = g->t.parallel.place.dp ? 0 : g->prompts.count;
	int rc = 0;

	if (streams(g))
		rc = mfs_decoder_new(g->tokenizer, true, &g->decoder, err);
	if (!rc && g->decoder)
		mft_sampler_tell(g->sampler, told, g);
	if (!rc)
		rc = mft_sampler_run(g->sampler, g->t.ctx, g->prompts.list, count, &how,
				     g->responses, err);
	return rc ? rc : print(g, err);
}

static int run(struct generation *g, struct mft_train_config *config,
	       const struct mft_launch *launch, struct mfs_error *err)
{
	int rc = open_model(g, config, launch, err);

	if (!rc)
		rc = open_tokenizer(g, err);
	if (!rc)
		rc = find_stops(g, err);
	if (!rc)
		rc = mft_prompt_list_read(config, g->tokenizer, *g->dir ? g->dir : NULL,
					  &g->prompts, err);
	if (!rc)
		rc = load_model(g, err);
	if (!rc)
		rc = open_sampler(g, err);
	return rc ? rc : answer(g, err);
}

int mft_generate(struct mft_train_config *config, const struct mft_launch *launch)
{
	struct generation g = {.t = {.config = config, .speaks = !launch->rank}};
	struct mfs_error err = {0};
	int rc;

	mft_parallel_one(&g.t.parallel);
	rc = run(&g, config, launch, &err);
	if (rc) {
		fprintf(stderr, "mcorefs-train: %s\n", err.msg);
		mft_parallel_end_all(&g.t.parallel, MFT_TRAIN_FAILED);
	}
	for (size_t i = 0; g.responses && i < g.prompts.count; i++)
		mft_response_release(&g.responses[i]);
	free(g.responses);
	free(g.stops);
	mfs_decoder_free(g.decoder);
	mft_prompt_list_release(&g.prompts);
	mfs_tokenizer_free(g.tokenizer);
	mft_sampler_free(g.sampler);
	mft_load_free(g.load);
	if (mft_trainer_close(&g.t, &err) && !rc)
		rc = fprintf(stderr, "mcorefs-train: %s\n", err.msg);
	return !rc ? MFT_TRAIN_OK : config->refused ? MFT_TRAIN_USAGE : MFT_TRAIN_FAILED;
}
