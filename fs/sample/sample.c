/* mcorefs sample: the batch of a training step. */
#include <stdio.h>
#include <stdlib.h>

#include "formats/ckpt/ckpt.h"
#include "formats/dataset/text/named_tokens.h"
#include "formats/tokenizer/tokenizer.h"
#include "fs/cli/cmdline.h"
#include "fs/cli/commands.h"
#include "fs/sample/command.h"
#include "fs/source/root.h"
#include "fs/sample/sample.h"

/* The arguments in a checkpoint. *ret_found is false if SOURCE is not a checkpoint. */
static int read_args(struct mfs_root *root, struct mfs_arena *arena,
		     struct mfs_megatron_data_args *ret, bool *ret_found, struct mfs_error *err)
{
	const struct mfs_root_snapshot *s = mfs_root_snapshot(root);
	const struct mfs_ckpt_common *state;
	struct mfs_ckpt *ckpt;
	int rc;

	*ret_found = false;
	if (!mfs_root_has_model(root) || !mfs_root_has_iterations(root))
		return 0;
	if (!s->latest)
		return mfs_fail(err, -ENODATA, "'%s' has no latest iteration: %s",
				mfs_root_source(root), s->latest_reason);
	rc = mfs_iteration_full_ckpt(s->latest, &ckpt, err);
	if (rc)
		return rc;
	state = mfs_ckpt_common(ckpt);
	if (!state)
		return mfs_fail(err, -ENODATA, "%s holds no arguments of its run",
				mfs_ckpt_dir(ckpt));
	*ret_found = true;
	return mfs_megatron_data_args_read(state->archive.doc, state->root, arena, ret, err);
}

static int show(const struct mfs_sample_options *o, const struct mfs_sample_plan *plan,
		const struct mfs_named_tokens *names, struct mfs_sample_data *data)
{
	struct mfs_sample_drawn *drawn = NULL;
	struct mfs_samples *samples = NULL;
	struct mfs_error err;
	uint64_t count;
	int exit_code;
	int rc = mfs_samples_new(&plan->words.run, MFS_TRAIN, mfs_sample_resolve, data, &samples,
				 &err);

	if (!rc)
		rc = mfs_samples_check(samples, &err);
	if (!rc)
		rc = mfs_sample_draw(plan, samples, &drawn, &count, &err);
	exit_code = rc ? mfs_command_failed("%s", err.msg)
		       : mfs_sample_output(o, plan, samples, names, drawn, count);
	free(drawn);
	mfs_samples_free(samples);
	return exit_code;
}

static int plan_and_show(const struct mfs_sample_options *o, const struct mfs_options *mount,
			 struct mfs_root *root)
{
	struct mfs_sample_data data = {.data = mfs_root_data(root),
				       .paths = {.vocab_size = mount->data.vocab_size}};
	struct mfs_megatron_data_args args;
	struct mfs_sample_plan plan;
	struct mfs_tokenizer *tok = NULL;
	struct mfs_named_tokens *names = NULL;
	struct mfs_arena arena = {0};
	struct mfs_error err;
	bool found;
	int exit_code;

	if (read_args(root, &arena, &args, &found, &err) ||
	    (o->text && (mfs_sample_find_tokenizer(root, mount, &tok, &err) ||
			 mfs_named_tokens_new(tok, &names, &err))))
		exit_code = mfs_command_failed("%s", err.msg);
	else
		exit_code = mfs_sample_make_plan(o, &mount->data, found ? &args : NULL, data.data,
						 &plan);
	if (!exit_code) {
		exit_code = show(o, &plan, names, &data);
		mfs_sample_plan_release(&plan);
	}
	mfs_named_tokens_free(names);
	mfs_tokenizer_free(tok);
	mfs_sample_data_release(&data);
	mfs_arena_release(&arena);
	return exit_code;
}

static int run(const struct mfs_sample_options *o, struct mfs_cmdline *c)
{
	struct mfs_root *root;
	struct mfs_error err;
	int exit_code;

	c->options.view.no_optim = true; /* nothing of it is asked for */
	if (mfs_root_open(c->arguments[0], &c->options.view, &root, &err))
		return mfs_command_failed("%s", err.msg);
	exit_code = plan_and_show(o, &c->options, root);
	mfs_root_free(root);
	return exit_code;
}

#define TEXT(name, field)                                                                          \
	{                                                                                          \
		name, MFS_VALUE_TEXT, &o.field                                                     \
	}
#define NUMBER(name, field)                                                                        \
	{                                                                                          \
		name, MFS_VALUE_NUMBER, &o.field                                                   \
	}
#define WORDS(name, field)                                                                         \
	{                                                                                          \
		name, MFS_VALUE_WORDS, &o.field                                                    \
	}

static const char help[] =
	"Prints the samples that a Megatron training run draws in one step, a JSON object\n"
	"for each: which sample of which dataset, the sequences that it is made of, and\n"
	"its tokens.\n"
	"\n"
	"SOURCE is a dataset (a prefix of .idx and .bin, a directory of them, a saved HF\n"
	"dataset), or a Megatron checkpoint. With a checkpoint, an option that is not\n"
	"given is as its run had it, and the prefixes of the run are looked for at their\n"
	"paths, or by name among -o data=PATH.\n"
	"\n"
	"  --step N                 as Megatron's log counts them, from 1; default: the\n"
	"                           next one of the checkpoint\n"
	"  --data-path WORDS        prefixes or names, with or without weights, as one\n"
	"                           argument or many: --data-path '0.7 wiki 0.3 books';\n"
	"                           also --train-data-path, and --data-args-path FILE\n"
	"  --split 99,1,0  --seq-length S  --seed K  --dataloader-type single|cyclic\n"
	"  --global-batch-size B  --train-iters N  --train-samples N\n"
	"                           the order depends on these, too\n"
	"  --micro-batch-size B  --data-parallel-size D\n"
	"                           they say which rank gets which sample\n"
	"  --rank R                 only the samples of that rank\n"
	"  --consumed-samples N     samples drawn before this step; default: what the\n"
	"                           steps before it take\n"
	"  --no-data-sharding       for --dataloader-type cyclic\n"
	"  --mid-level-dataset-surplus F    0.005\n"
	"  --megatron VERSION       version whose rules order samples (0.10, 2.6);\n"
	"                           default: the newest, or what the checkpoint's\n"
	"                           arguments say\n"
	"  --eod-mask-loss --eod ID a loss_mask that is 0 where a token is ID\n"
	"  --pad ID                 a loss_mask that is 0 where a label is ID, the\n"
	"                           tokenizer's pad token\n"
	"  --text                   text in the place of tokens, by -o tokenizer=DIR or the\n"
	"                           tokenizer next to SOURCE; special tokens have names\n"
	"  --npy FILE, --bin FILE   write the tokens instead, int64, samples by S+1;\n"
	"                           -: to stdout\n";

int mfs_cmd_sample(int argc, char **argv)
{
	struct mfs_sample_options o = mfs_sample_none_given;
	struct mfs_cmdline c = {
		.usage = "sample SOURCE [--step N] [OPTIONS] [-o OPTIONS]",
		.help = help,
		.min = 1,
		.max = 1,
		.switches = {{"no-data-sharding", &o.no_data_sharding},
			     {"eod-mask-loss", &o.eod_mask_loss},
			     {"text", &o.text}},
		.valued = {WORDS("data-path", data_path),
			   WORDS("train-data-path", train_data_path),
			   TEXT("data-args-path", data_args_path),
			   TEXT("split", split),
			   TEXT("dataloader-type", dataloader_type),
			   TEXT("megatron", megatron),
			   TEXT("mid-level-dataset-surplus", surplus),
			   TEXT("npy", npy),
			   TEXT("bin", bin),
			   NUMBER("step", step),
			   NUMBER("seq-length", seq_length),
			   NUMBER("seed", seed),
			   NUMBER("train-samples", train_samples),
			   NUMBER("train-iters", train_iters),
			   NUMBER("global-batch-size", global_batch_size),
			   NUMBER("micro-batch-size", micro_batch_size),
			   NUMBER("data-parallel-size", data_parallel_size),
			   NUMBER("rank", rank),
			   NUMBER("consumed-samples", consumed_samples),
			   NUMBER("eod", eod),
			   NUMBER("pad", pad)},
	};
	int exit_code;

	if (mfs_cmdline_parse(&c, argc, argv, &exit_code))
		exit_code = run(&o, &c);
	mfs_buf_release(&o.data_path);
	mfs_buf_release(&o.train_data_path);
	return mfs_cmdline_end(&c, exit_code);
}
