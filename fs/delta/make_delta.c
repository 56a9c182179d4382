#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/absent.h"
#include "formats/base/path.h"
#include "formats/delta/delta_base.h"
#include "formats/io/beneath.h"
#include "fs/cli/cmdline.h"
#include "fs/cli/commands.h"
#include "fs/cli/json.h"
#include "fs/cli/progress.h"
#include "fs/cli/stop.h"
#include "fs/cli/text.h"
#include "fs/delta/command.h"
#include "fs/delta/delta_pairs.h"
#include "fs/source/root.h"

struct command {
	const char *view, *mode, *checksum, *base; /* NULL: not given */
	uint64_t version;			   /* MFS_ABSENT_U64: not given */
	bool json;
	const struct mfs_cmdline *line;

	struct mfs_root *roots[2];
	struct mfs_weight_files sides[2];
	struct mfs_delta_pairs pairs;
	struct mfs_delta_meta meta;
	struct mfs_delta *before; /* the version that is changed; NULL: it is no delta */
	struct mfs_delta_writer *writer;
	uint64_t written;
	double seconds;
};

static const char *out_of(const struct command *c)
{
	return c->line->arguments[2];
}

/* ---- before it is written ---- */

static int open_sides(struct command *c, struct mfs_error *err)
{
	struct mfs_view_options options = c->line->options.view;
	int rc = 0;

	options.base_of_either = true;
	for (int i = 0; i < 2 && !rc; i++) {
		rc = mfs_root_open(c->line->arguments[i], &options, &c->roots[i], err);
		if (!rc)
			rc = mfs_weight_files_open(c->roots[i], c->view, &c->sides[i], err);
	}
	return rc ? rc : mfs_delta_pairs_init(&c->sides[0], &c->sides[1], &c->pairs, err);
}

/* Opens the version before, if it is there and a delta. */
static int open_before(struct command *c, struct mfs_error *err)
{
	char name[MFS_DELTA_DIR_SIZE], *path;
	bool is_delta = false;
	int rc;

	if (asprintf(&path, "%s/%s", out_of(c), mfs_delta_dir_name(c->meta.base_version, name)) < 0)
		return mfs_fail_nomem(err);
	rc = mfs_delta_looks_like_one(path, &is_delta, err);
	if (!rc && is_delta)
		rc = mfs_delta_open(path, &c->before, err);
	free(path);
	return rc == -ENOENT ? 0 : rc;
}

/* The next one, unless another is asked for. */
static int choose_version(struct command *c, struct mfs_error *err)
{
	uint32_t *list, count;
	int rc = mfs_make_path(out_of(c), 0755, 0755);

	if (rc)
		return mfs_fail(err, rc, "cannot make '%s': %s", out_of(c), mfs_errno_text(-rc));
	rc = mfs_delta_versions(out_of(c), &list, &count, err);
	if (rc)
		return rc;
	if (c->version == MFS_ABSENT_U64)
		c->version = count ? (uint64_t)list[count - 1] + 1 : 1;
	free(list);
	if (c->version > UINT32_MAX)
		return mfs_fail(err, -ERANGE, "'%s' has version %u, which is the last one",
				out_of(c), UINT32_MAX);
	c->meta.version = (uint32_t)c->version;
	c->meta.base_version = c->meta.version - 1;
	return open_before(c, err);
}

/* ---- the base ---- */

/* --base from any working directory. */
static int name_given(const char *base, char **ret, struct mfs_error *err)
{
	const bool stays = *base == '/' || strstr(base, "://");

	*ret = stays ? strdup(base) : realpath(base, NULL);
	return *ret ? 0 : mfs_fail_errno(err, "--base '%s'", base);
}

/* SOURCE in a form that stays: the iteration that is the latest today. */
static int name_base(const struct command *c, char **ret, struct mfs_error *err)
{
	const char *source = mfs_root_source(c->roots[0]);
	const char *path = mfs_iteration_path(c->sides[0].iteration);
	int n;

	if (c->base)
		return name_given(c->base, ret, err);
	if (mfs_path_contains(source, path))
		n = asprintf(ret, "%s", path);
	else
		n = asprintf(ret, "%s", source);
	return n < 0 ? mfs_fail_nomem(err) : 0;
}

/* Of the first version alone: before it is there, so that no chain is without. */
static int write_base(const struct command *c, struct mfs_error *err)
{
	struct mfs_delta_base base = {.view = c->sides[0].view, .sum = c->meta.sum};
	char *name;
	int rc;

	if (c->meta.base_version)
		return 0;
	base.sums = calloc((size_t)c->pairs.count + 1, sizeof(*base.sums));
	if (!base.sums)
		return mfs_fail_nomem(err);
	rc = name_base(c, &name, err);
	if (!rc) {
		base.source = name;
		for (; base.count < c->pairs.count; base.count++)
			base.sums[base.count] = (struct mfs_delta_base_sum){
				c->pairs.tensors[base.count].name,
				c->pairs.tensors[base.count].sums[MFS_DELTA_OLD]};
		rc = mfs_delta_base_write(out_of(c), &base, err);
		free(name);
	}
	free(base.sums);
	return rc;
}

/* ---- the command ---- */

static int make(struct command *c, struct mfs_error *err)
{
	struct mfs_progress clock;
	int rc = 0;

	if (c->mode)
		rc = mfs_delta_encoding_parse(c->mode, &c->meta.encoding, err);
	if (!rc && c->checksum)
		rc = mfs_delta_sum_parse(c->checksum, &c->meta.sum, err);
	if (!rc)
		rc = open_sides(c, err);
	if (!rc)
		rc = choose_version(c, err);
	mfs_stop_on_signals();
	mfs_progress_init(&clock, stderr, 0, 0);
	if (!rc)
		rc = mfs_delta_writer_new(out_of(c), &c->meta, c->pairs.shard_count, &c->writer,
					  err);
	if (!rc)
		rc = mfs_delta_pairs_write(&c->pairs, c->before, c->writer, err);
	if (!rc)
		rc = write_base(c, err);
	if (!rc)
		rc = mfs_delta_writer_finish(c->writer, err);
	if (rc)
		return rc;
	c->written = mfs_delta_writer_bytes(c->writer);
	c->seconds = mfs_progress_seconds(&clock);
	return 0;
}

static uint64_t changed_bytes(const struct command *c, uint32_t *ret_tensors)
{
	uint64_t bytes = 0;

	*ret_tensors = 0;
	for (uint32_t i = 0; i < c->pairs.count; i++) {
		bytes += c->pairs.tensors[i].changed;
		*ret_tensors += c->pairs.tensors[i].changed > 0;
	}
	return bytes;
}

static double percent(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0;
}

static void print_text(const struct command *c)
{
	const uint64_t bytes = c->sides[1].bytes;
	char name[MFS_DELTA_DIR_SIZE], all[MFS_HUMAN], wrote[MFS_HUMAN], rate[MFS_HUMAN];
	uint32_t tensors;
	const uint64_t changed = changed_bytes(c, &tensors);
	const double seconds = c->seconds > 0 ? c->seconds : 1e-9;

	printf("%s/%s: %.2f %% of %s differ, in %u of %u tensors; %s written (%.2f %%) in %.1f s "
	       "(%s/s)\n",
	       out_of(c), mfs_delta_dir_name(c->meta.version, name), percent(changed, bytes),
	       mfs_human_bytes(bytes, all), tensors, c->pairs.count,
	       mfs_human_bytes(c->written, wrote), percent(c->written, bytes), c->seconds,
	       mfs_human_bytes((uint64_t)((double)bytes / seconds), rate));
}

static int print_json(const struct command *c)
{
	json_t *o = json_object();
	uint32_t tensors;
	const uint64_t changed = changed_bytes(c, &tensors);

	json_object_set_new(o, "out", mfs_json_string(out_of(c)));
	json_object_set_new(o, "version", mfs_json_number(c->meta.version));
	json_object_set_new(o, "base_version", mfs_json_number(c->meta.base_version));
	json_object_set_new(o, "tensors", mfs_json_number(c->pairs.count));
	json_object_set_new(o, "changed_tensors", mfs_json_number(tensors));
	json_object_set_new(o, "bytes", mfs_json_number(c->sides[1].bytes));
	json_object_set_new(o, "changed_bytes", mfs_json_number(changed));
	json_object_set_new(o, "written_bytes", mfs_json_number(c->written));
	json_object_set_new(o, "seconds", json_real(c->seconds));
	return mfs_json_print(o) ? mfs_command_failed("out of memory") : MFS_EXIT_OK;
}

static int run(struct command *c)
{
	struct mfs_error err;
	int rc, exit_code;

	if (c->version != MFS_ABSENT_U64 && (!c->version || c->version > UINT32_MAX))
		return mfs_usage_error("delta: --version is from 1 to %u, found %llu", UINT32_MAX,
				       (unsigned long long)c->version);
	rc = make(c, &err);
	if (rc) {
		mfs_command_failed("%s", err.msg);
		exit_code = mfs_stop_code(MFS_EXIT_FAILED);
	} else if (c->json) {
		exit_code = print_json(c);
	} else {
		print_text(c);
		exit_code = MFS_EXIT_OK;
	}
	mfs_delta_writer_free(c->writer);
	mfs_delta_free(c->before);
	mfs_delta_pairs_release(&c->pairs);
	for (int i = 0; i < 2; i++) {
		mfs_weight_files_release(&c->sides[i]);
		mfs_root_free(c->roots[i]);
	}
	return exit_code;
}

int mfs_cmd_delta(int argc, char **argv)
{
	struct command c = {.version = MFS_ABSENT_U64};
	struct mfs_cmdline line = {
		.usage = "delta A B OUT [--view VIEW] [--mode xor|overwrite] [-o OPTIONS]",
		.help = "Writes what has changed from A to B, two SOURCEs of one model at any\n"
			"layouts, as the next version in the directory OUT: weight_v000001, ...,\n"
			"as slime and miles write it, and SGLang's /pull_weights reads it. OUT is\n"
			"a SOURCE itself, which shows each version whole.\n"
			"\n"
			"  --view VIEW      of both (hf; of a HuggingFace model its own files)\n"
			"  --mode MODE      xor, the smallest; overwrite can be applied twice\n"
			"  --checksum KIND  of each tensor: xxh3-128, or adler32\n"
			"  --version N      another number than the next one\n"
			"  --base SOURCE    what weight_base.json calls A\n"
			"  --json           for programs\n",
		.min = 3,
		.max = 3,
		.switches = {{"json", &c.json}},
		.valued = {{"view", MFS_VALUE_TEXT, &c.view},
			   {"mode", MFS_VALUE_TEXT, &c.mode},
			   {"checksum", MFS_VALUE_TEXT, &c.checksum},
			   {"version", MFS_VALUE_NUMBER, &c.version},
			   {"base", MFS_VALUE_TEXT, &c.base}},
	};
	int exit_code;

	c.line = &line;
	if (mfs_cmdline_parse(&line, argc, argv, &exit_code))
		exit_code = run(&c);
	return mfs_cmdline_end(&line, exit_code);
}
