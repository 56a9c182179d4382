#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/str.h"
#include "formats/ckpt/ckpt.h"
#include "fs/cli/cmdline.h"
#include "fs/cli/commands.h"
#include "fs/source/root.h"
#include "fs/sum/command.h"
#include "fs/sum/hash.h"
#include "fs/sum/signature.h"
#include "fs/sum/sums.h"
#include "fs/view/view.h"

#define MAX_PROBLEMS 20 /* printed; more are only counted */

struct command {
	const char *check, *key, *signature; /* NULL: not given */
	bool optim, quiet;
	const struct mfs_cmdline *line;
	struct mfs_root *root;
	struct mfs_ckpt *ckpt;
	uint64_t vocabulary; /* true rows; 0: not known */
	/* tensors of the source, sorted by name */
	struct mfs_sum *sums;
	struct mfs_hash_job *jobs; /* the same, in the same order */
	uint32_t count;
	struct mfs_arena arena;
	uint64_t problems;
};

/* ---- the source ---- */

static int open_ckpt(struct command *c, struct mfs_iteration *it, struct mfs_error *err)
{
	int rc = c->optim ? mfs_iteration_full_ckpt(it, &c->ckpt, err)
			  : mfs_iteration_ckpt(it, &c->ckpt, err);

	if (!rc && c->optim && mfs_ckpt_count_all(c->ckpt) == mfs_ckpt_count(c->ckpt))
		rc = mfs_fail(err, -ENODATA, "%s has no optimizer", mfs_ckpt_dir(c->ckpt));
	return rc ? rc : mfs_view_true_vocab(c->ckpt, &c->line->options.view, &c->vocabulary, err);
}

static int open_source(struct command *c, struct mfs_error *err)
{
	const char *path = c->line->arguments[0];
	const struct mfs_root_snapshot *snapshot;
	int rc = mfs_root_open(path, &c->line->options.view, &c->root, err);

	if (rc)
		return rc;
	if (!mfs_root_has_model(c->root))
		return mfs_fail(err, -ENODATA, "'%s' holds datasets; sum is for models", path);
	snapshot = mfs_root_snapshot(c->root);
	if (!snapshot->latest)
		return mfs_fail(err, -ENODATA, "'%s' has no latest iteration: %s", path,
				snapshot->latest_reason);
	return open_ckpt(c, snapshot->latest, err);
}

/* ---- tensors in their canonical form ---- */

/* Norms count as the model uses them, whatever a run stores. Of optimizer states, only the fp32
 * parameter is a weight. */
static bool is_shifted(const struct command *c, const struct mfs_global_tensor *t)
{
	return mfs_ckpt_args(c->ckpt)->zero_centered_gamma && t->state <= MFS_STATE_MAIN &&
	       mfs_global_tensor_is_norm(t);
}

static int describe(struct command *c, const struct mfs_global_tensor *t, struct mfs_sum *s,
		    struct mfs_error *err)
{
	char name[MFS_CKPT_NAME_SIZE];

	mfs_global_tensor_name(t, name, sizeof(name));
	if (!mfs_sums_name_ok(name))
		return mfs_fail(err, -EINVAL, "%s: the name of a tensor has control characters",
				mfs_ckpt_dir(c->ckpt));
	*s = (struct mfs_sum){.dtype = t->dtype, .ndim = t->ndim};
	s->name = mfs_arena_strndup(&c->arena, name, strlen(name));
	if (!s->name)
		return mfs_fail_nomem(err);
	memcpy(s->shape, t->shape, t->ndim * sizeof(*t->shape));
	/* Rows of padding are a matter of the layout. */
	if (mfs_global_tensor_is_vocabulary(t) && c->vocabulary && c->vocabulary < s->shape[0])
		s->shape[0] = c->vocabulary;
	return 0;
}

/* A tensor and its job, while they are sorted. */
struct entry {
	struct mfs_sum sum;
	struct mfs_hash_job job;
};

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct entry *)a)->sum.name, ((const struct entry *)b)->sum.name);
}

static int list_entries(struct command *c, struct entry *entries, struct mfs_error *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < c->count && !rc; i++) {
		const struct mfs_global_tensor *t = mfs_ckpt_at(c->ckpt, i);

		rc = describe(c, t, &entries[i].sum, err);
		entries[i].job = (struct mfs_hash_job){
			.t = t, .add_one = is_shifted(c, t), .rows = entries[i].sum.shape[0]};
	}
	return rc;
}

static int list_tensors(struct command *c, struct mfs_error *err)
{
	struct entry *entries;
	int rc;

	c->count = c->optim ? mfs_ckpt_count_all(c->ckpt) : mfs_ckpt_count(c->ckpt);
	entries = calloc((size_t)c->count + 1, sizeof(*entries));
	c->sums = calloc((size_t)c->count + 1, sizeof(*c->sums));
	c->jobs = calloc((size_t)c->count + 1, sizeof(*c->jobs));
	rc = entries && c->sums && c->jobs ? list_entries(c, entries, err) : mfs_fail_nomem(err);
	if (!rc) {
		qsort(entries, c->count, sizeof(*entries), by_name);
		for (uint32_t i = 0; i < c->count; i++) {
			c->sums[i] = entries[i].sum;
			c->jobs[i] = entries[i].job;
		}
	}
	free(entries);
	return rc;
}

/* ---- writing ---- */

static void warn_of_padding(const struct command *c)
{
	for (uint32_t i = 0; i < c->count && !c->vocabulary; i++)
		if (mfs_global_tensor_is_vocabulary(c->jobs[i].t) &&
		    mfs_ckpt_format(c->ckpt) != MFS_CKPT_HF) {
			fprintf(stderr,
				"mcorefs: the true size of the vocabulary is not recorded: the "
				"sums are of all %llu padded rows; give it with -o vocab_size=N, "
				"vocab_size=tokenizer or ref=DIR\n",
				(unsigned long long)c->sums[i].shape[0]);
			return;
		}
}

static int print_sums(struct command *c, struct mfs_error *err)
{
	int rc = mfs_hash_all(c->ckpt, c->jobs, c->count, 0, err);

	for (uint32_t i = 0; i < c->count && !rc; i++)
		if (c->jobs[i].why)
			rc = mfs_fail(err, -EIO, "%s", c->jobs[i].why);
	if (rc)
		return rc;
	warn_of_padding(c);
	mfs_sums_print_begin(stdout);
	for (uint32_t i = 0; i < c->count; i++) {
		memcpy(c->sums[i].sha256, c->jobs[i].sha256, MFS_SHA256_BYTES);
		mfs_sums_print(stdout, &c->sums[i]);
	}
	mfs_sums_print_end(stdout, c->count);
	return 0;
}

/* ---- checking ---- */

static void problem(struct command *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void problem(struct command *c, const char *fmt, ...)
{
	char text[640];
	va_list ap;

	if (c->problems++ >= MAX_PROBLEMS)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	mfs_command_failed("%s", text);
}

/* Padding is not signed, whatever it holds: rows of a source whose true vocabulary is not known may
 * go beyond the rows of the sums. */
static bool is_padded(const struct command *c, const struct mfs_global_tensor *t,
		      const struct mfs_sum *found, const struct mfs_sum *want)
{
	return mfs_global_tensor_is_vocabulary(t) && !c->vocabulary &&
	       found->shape[0] > want->shape[0];
}

/* True if the tensor has type and shape of the sums, so that its bytes can be compared. */
static bool is_comparable(struct command *c, uint32_t i, const struct mfs_sum *want)
{
	char shape[2][24 * MFS_MAX_DIMS];
	struct mfs_sum found = c->sums[i];

	if (found.ndim == want->ndim && is_padded(c, c->jobs[i].t, &found, want))
		found.shape[0] = want->shape[0];
	if (found.dtype == want->dtype && found.ndim == want->ndim &&
	    !memcmp(found.shape, want->shape, sizeof(found.shape))) {
		c->jobs[i].rows = want->shape[0];
		return true;
	}
	problem(c, "tensor '%s': expected %s %s, found %s %s", want->name,
		mfs_dtype_name(want->dtype),
		mfs_shape_text(want->shape, want->ndim, shape[0], sizeof(shape[0])),
		mfs_dtype_name(found.dtype),
		mfs_shape_text(found.shape, found.ndim, shape[1], sizeof(shape[1])));
	return false;
}

/* Pairs tensors with lines, and keeps the jobs of those that can be compared, in front. */
static void pair_up(struct command *c, const struct mfs_sums *want)
{
	uint32_t kept = 0, i = 0, k = 0;

	while (i < c->count || k < want->count) {
		const int order = i == c->count	     ? 1
				  : k == want->count ? -1
						     : strcmp(c->sums[i].name, want->list[k].name);

		if (order < 0)
			problem(c, "tensor '%s' is not in %s", c->sums[i].name, c->check);
		else if (order > 0)
			problem(c, "tensor '%s' of %s is missing", want->list[k].name, c->check);
		else if (is_comparable(c, i, &want->list[k]))
			c->jobs[kept++] = c->jobs[i];
		i += order <= 0;
		k += order >= 0;
	}
	c->count = kept;
}

static void compare(struct command *c, const struct mfs_hash_job *job, const struct mfs_sums *want)
{
	char found[2 * MFS_SHA256_BYTES + 1], expected[sizeof(found)], name[MFS_CKPT_NAME_SIZE];
	const struct mfs_sum *s;

	mfs_global_tensor_name(job->t, name, sizeof(name));
	s = mfs_sums_find(want, name);
	if (job->why) {
		problem(c, "%s", job->why);
	} else if (memcmp(job->sha256, s->sha256, MFS_SHA256_BYTES)) {
		mfs_str_hex(job->sha256, MFS_SHA256_BYTES, found);
		mfs_str_hex(s->sha256, MFS_SHA256_BYTES, expected);
		problem(c, "tensor '%s': SHA-256 is %s, %s says %s", name, found, c->check,
			expected);
	}
}

static int check_sums(struct command *c, const struct mfs_sums *want, struct mfs_error *err)
{
	int rc;

	pair_up(c, want);
	rc = mfs_hash_all(c->ckpt, c->jobs, c->count, 0, err);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < c->count; i++)
		compare(c, &c->jobs[i], want);
	if (c->problems)
		return mfs_fail(err, -EINVAL, "%s: %llu problem%s found", c->line->arguments[0],
				(unsigned long long)c->problems, c->problems > 1 ? "s" : "");
	if (!c->quiet)
		printf("%s: the sums of %u tensors are right%s\n", c->line->arguments[0], c->count,
		       c->key ? ", and signed" : "");
	return 0;
}

/* The file is looked at first: a wrong signature costs no reading of weights. */
static int read_sums(const struct command *c, struct mfs_sums *ret, struct mfs_error *err)
{
	char beside[4096];
	size_t len;
	void *text;
	int rc = mfs_signature_slurp(c->check, MFS_SUMS_MAX_BYTES, &text, &len, err);

	if (rc)
		return rc;
	snprintf(beside, sizeof(beside), "%s.sig", c->check);
	if (c->key)
		rc = mfs_signature_check(text, len, c->check, c->key,
					 c->signature ? c->signature : beside, err);
	if (!rc)
		rc = mfs_sums_parse(text, len, c->check, ret, err);
	free(text);
	return rc;
}

/* ---- the command ---- */

static int check(struct command *c, struct mfs_error *err)
{
	struct mfs_sums want;
	int rc = read_sums(c, &want, err);

	if (rc)
		return rc;
	rc = open_source(c, err);
	if (!rc)
		rc = list_tensors(c, err);
	if (!rc)
		rc = check_sums(c, &want, err);
	mfs_sums_release(&want);
	return rc;
}

static int print(struct command *c, struct mfs_error *err)
{
	int rc = open_source(c, err);

	if (!rc)
		rc = list_tensors(c, err);
	return rc ? rc : print_sums(c, err);
}

static void release(struct command *c, uint32_t count)
{
	for (uint32_t i = 0; c->jobs && i < count; i++)
		free(c->jobs[i].why);
	free(c->jobs);
	free(c->sums);
	mfs_arena_release(&c->arena);
	mfs_root_free(c->root);
}

static int run(struct command *c)
{
	struct mfs_error err;
	int rc;

	if (!c->check && (c->key || c->signature || c->quiet))
		return mfs_usage_error("sum: --key, --signature and --quiet need --check FILE");
	if (c->signature && !c->key)
		return mfs_usage_error("sum: --signature needs --key PEM");
	rc = c->check ? check(c, &err) : print(c, &err);
	release(c, c->count);
	return rc ? mfs_command_failed("%s", err.msg) : MFS_EXIT_OK;
}

int mfs_cmd_sum(int argc, char **argv)
{
	struct command c = {0};
	struct mfs_cmdline line = {
		.usage = "sum SOURCE [--check FILE [--key PEM [--signature FILE]]] [--optim]",
		.help = "Prints SHA-256 of each tensor of the model (of the latest iteration):\n"
			"the same lines for every format and layout of the same weights, and\n"
			"through the mount. Rows that only pad the vocabulary do not count.\n"
			"\n"
			"  --check FILE      compare with the lines in FILE; the exit status is 1\n"
			"                    if a tensor differs, lacks or is not in FILE\n"
			"  --key PEM         FILE must be signed by this key: Ed25519, RSA or EC\n"
			"  --signature FILE  the signature (default: that of --check with .sig)\n"
			"  --optim           tensors of the optimizer, too\n"
			"  -q, --quiet       say nothing if all is right\n",
		.min = 1,
		.max = 1,
		.switches = {{"quiet", &c.quiet}, {"optim", &c.optim}},
		.valued = {{"check", MFS_VALUE_TEXT, &c.check},
			   {"key", MFS_VALUE_TEXT, &c.key},
			   {"signature", MFS_VALUE_TEXT, &c.signature}},
		.letters = "q",
	};
	int exit_code;

	c.line = &line;
	if (mfs_cmdline_parse(&line, argc, argv, &exit_code))
		exit_code = run(&c);
	return mfs_cmdline_end(&line, exit_code);
}
