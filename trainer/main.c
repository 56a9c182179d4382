/* mcorefs-train: the arguments of pretrain_gpt.py. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/trace.h"
#include "formats/base/version.h"
#include "trainer/config/help/help.h"
#include "trainer/config/parse/parse.h"
#include "trainer/config/settle/settle.h"
#include "trainer/config/value.h"
#include "trainer/loop/generate_run.h"
#include "trainer/loop/layouts.h"
#include "trainer/loop/train.h"
#include "trainer/parallel/launch.h"

static int say(const struct mfs_error *err, int code)
{
	fprintf(stderr, "mcorefs-train: %s\n", err->msg);
	if (code == MFT_TRAIN_USAGE)
		fprintf(stderr, "mcorefs-train --help lists all flags\n");
	return code;
}

/* Prints and releases a text. */
static int print(struct mfs_buf *text)
{
	const bool bad = text->failed || fwrite(text->data, 1, text->len, stdout) != text->len ||
			 fflush(stdout);

	mfs_buf_release(text);
	if (bad)
		perror("mcorefs-train: stdout");
	return bad ? MFT_TRAIN_FAILED : 0;
}

/* The words of --help are one topic; none: everything. */
static int help(const struct mft_flag_value *words, struct mfs_buf *out, struct mfs_error *err)
{
	struct mfs_buf topic = {0};
	int r = 0;

	for (size_t i = 0; i < words->count; i++)
		mfs_buf_printf(&topic, "%s%s", i ? " " : "", words->items[i].text);
	if (topic.failed)
		r = mfs_fail_nomem(err);
	else if (words->count)
		r = mft_help_topic(topic.data, out, err);
	else
		mft_help_flags(out);
	mfs_buf_release(&topic);
	return r;
}

/* --help, --version and --completions. True: *ret_exit is the program's. */
static bool answers(const struct mft_train_config *c, int *ret_exit)
{
	const char *shell = mft_flag_text(c->values, "completions");
	const struct mft_flag_value *words = mft_flag_get(c->values, "help");
	struct mfs_error err = {0};
	struct mfs_buf out = {0};
	int r = 0;

	if (words->type == MFT_IS_LIST)
		r = help(words, &out, &err);
	else if (mft_flag_truth(c->values, "version"))
		mfs_buf_printf(&out, "mcorefs-train %s\n", MFS_VERSION);
	else if (shell)
		r = mft_help_completions(shell, &out, &err);
	else
		return false;
	if (r)
		*ret_exit = say(&err, MFT_TRAIN_USAGE);
	if (out.len)
		*ret_exit = print(&out);
	return true;
}

/* What the launcher says goes to the arguments, as training/arguments.py puts it there. */
static int find_world(struct mft_train_config *c, struct mft_launch *ret, struct mfs_error *err)
{
	const int r = mft_launch_find(ret, err);

	mft_flag_set_number(c->values, "world_size", ret->size);
	mft_flag_set_number(c->values, "rank", ret->rank);
	return r;
}

/* What a checkpoint may have a word in is settled when it is open (ckpt/load.h). */
static bool waits_for_checkpoint(const struct mft_train_config *c)
{
	return c->load || c->pretrained_checkpoint;
}

/* Before anything is settled: each layout settles what follows from it. */
static int suggest(struct mft_train_config *c, const struct mft_launch *launch)
{
	struct mfs_error err;

	if (c->dry_run && c->machine && c->gpus > 0)
		return mft_suggest_layout(c, launch);
	mfs_fail(&err, -EINVAL, "--suggest-layout: expected --dry-run, --machine and --gpus, too");
	return say(&err, MFT_TRAIN_USAGE);
}

static int run(struct mft_train_config *c)
{
	struct mft_launch launch;
	struct mfs_error err = {0};
	int r = find_world(c, &launch, &err);

	if (!r && c->suggest_layout)
		return suggest(c, &launch);
	if (!r && c->generate.on)
		return mft_generate(c, &launch);
	if (!r && !waits_for_checkpoint(c))
		r = mft_train_config_settle(c, &err);
	if (r)
		return say(&err, MFT_TRAIN_USAGE);
	return mft_train(c, &launch);
}

int main(int argc, char **argv)
{
	struct mft_train_config c;
	struct mfs_error err = {0};
	int code = 0;

	mfs_trace_begin();
	if (mft_train_config_parse(argc, argv, &c, &err))
		return say(&err, MFT_TRAIN_USAGE);
	if (!answers(&c, &code))
		code = run(&c);
	mft_train_config_release(&c);
	return code;
}
