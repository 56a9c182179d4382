/* mcorefs-train: the arguments of pretrain_gpt.py. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/trace.h"
#include "formats/base/version.h"
#include "trainer/config/help.h"
#include "trainer/config/parse.h"
#include "trainer/config/settle/settle.h"
#include "trainer/config/value.h"
#include "trainer/loop/layouts.h"
#include "trainer/loop/train.h"
#include "trainer/parallel/launch.h"

static int say(const struct mfs_error *err, int code)
{
	fprintf(stderr, "mcorefs-train: %s\n", err->msg);
	if (code == MFS_TRAIN_USAGE)
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
	return bad ? MFS_TRAIN_FAILED : 0;
}

/* The words of --help are one topic; none: everything. */
static int help(const struct mfs_flag_value *words, struct mfs_buf *out, struct mfs_error *err)
{
	struct mfs_buf topic = {0};
	int r = 0;

	for (size_t i = 0; i < words->count; i++)
		mfs_buf_printf(&topic, "%s%s", i ? " " : "", words->items[i].text);
	if (topic.failed)
		r = mfs_fail_nomem(err);
	else if (words->count)
		r = mfs_help_topic(topic.data, out, err);
	else
		mfs_help_flags(out);
	mfs_buf_release(&topic);
	return r;
}

/* --help, --version and --completions. True: *ret_exit is the program's. */
static bool answers(const struct mfs_train_config *c, int *ret_exit)
{
	const char *shell = mfs_flag_text(c->values, "completions");
	const struct mfs_flag_value *words = mfs_flag_get(c->values, "help");
	struct mfs_error err = {0};
	struct mfs_buf out = {0};
	int r = 0;

	if (words->type == MFS_IS_LIST)
		r = help(words, &out, &err);
	else if (mfs_flag_truth(c->values, "version"))
		mfs_buf_printf(&out, "mcorefs-train %s\n", MFS_VERSION);
	else if (shell)
		r = mfs_help_completions(shell, &out, &err);
	else
		return false;
	if (r)
		*ret_exit = say(&err, MFS_TRAIN_USAGE);
	if (out.len)
		*ret_exit = print(&out);
	return true;
}

/* What the launcher says goes to the arguments, as training/arguments.py puts it there. */
static int find_world(struct mfs_train_config *c, struct mfs_launch *ret, struct mfs_error *err)
{
	const int r = mfs_launch_find(ret, err);

	mfs_flag_set_number(c->values, "world_size", ret->size);
	mfs_flag_set_number(c->values, "rank", ret->rank);
	return r;
}

/* What a checkpoint may have a word in is settled when it is open (ckpt/load.h). */
static bool waits_for_checkpoint(const struct mfs_train_config *c)
{
	return c->load || c->pretrained_checkpoint;
}

/* Before anything is settled: each layout settles what follows from it. */
static int suggest(struct mfs_train_config *c, const struct mfs_launch *launch)
{
	struct mfs_error err;

	if (c->dry_run && c->machine && c->gpus > 0)
		return mfs_suggest_layout(c, launch);
	mfs_fail(&err, -EINVAL, "--suggest-layout: expected --dry-run, --machine and --gpus, too");
	return say(&err, MFS_TRAIN_USAGE);
}

static int run(struct mfs_train_config *c)
{
	struct mfs_launch launch;
	struct mfs_error err = {0};
	int r = find_world(c, &launch, &err);

	if (!r && c->suggest_layout)
		return suggest(c, &launch);
	if (!r && !waits_for_checkpoint(c))
		r = mfs_train_config_settle(c, &err);
	if (r)
		return say(&err, MFS_TRAIN_USAGE);
	return mfs_train(c, &launch);
}

int main(int argc, char **argv)
{
	struct mfs_train_config c;
	struct mfs_error err = {0};
	int code = 0;

	mfs_trace_begin();
	if (mfs_train_config_parse(argc, argv, &c, &err))
		return say(&err, MFS_TRAIN_USAGE);
	if (!answers(&c, &code))
		code = run(&c);
	mfs_train_config_release(&c);
	return code;
}
