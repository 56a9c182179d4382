#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/ckpt/ckpt.h"
#include "formats/io/commit.h"
#include "fs/cli/cmdline.h"
#include "fs/cli/commands.h"
#include "fs/source/root.h"
#include "fs/sum/command.h"
#include "fs/sums/tensor_hash.h"
#include "fs/sums/signature.h"
#include "fs/sums/sums.h"
#include "fs/sums/tensors.h"

struct command {
	const char *output, *sign; /* NULL: stdout; no signature */
	EVP_PKEY *key;		   /* of sign, or NULL */
	bool optim;
	const struct mfs_cmdline *line;
	struct mfs_root *root;
	struct mfs_tensors tensors;
};

static int list_tensors(struct command *c, struct mfs_error *err)
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
	return mfs_tensors_list(snapshot->latest, &c->line->options.view, c->optim, &c->tensors,
				err);
}

static void warn_of_padding(const struct mfs_tensors *t)
{
	for (uint32_t i = 0; i < t->count && !t->vocabulary; i++)
		if (mfs_global_tensor_is_vocabulary(t->jobs[i].t) &&
		    !mfs_ckpt_format(t->ckpt)->is_hf) {
			fprintf(stderr,
				"mcorefs: the true size of the vocabulary is not recorded: the "
				"sums are of all %llu padded rows; give it with -o vocab_size=N, "
				"vocab_size=tokenizer or ref=DIR\n",
				(unsigned long long)t->sums[i].shape[0]);
			return;
		}
}

static void print_lines(struct mfs_tensors *t, FILE *to)
{
	mfs_sums_print_begin(to);
	for (uint32_t i = 0; i < t->count; i++) {
		memcpy(t->sums[i].sha256, t->jobs[i].sha256, MFS_SHA256_BYTES);
		mfs_sums_print(to, &t->sums[i]);
	}
	mfs_sums_print_end(to, t->count);
}

/* ---- files ---- */

/* Writes the file `name` next to FILE, or FILE itself. */
static int commit(const char *path, const void *bytes, size_t len, struct mfs_error *err)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	char dir[4096] = ".";
	int fd, rc;

	if (slash)
		snprintf(dir, sizeof(dir), "%.*s", slash == path ? 1 : (int)(slash - path), path);
	if (!*name)
		return mfs_fail(err, -EISDIR, "'%s' is a directory", path);
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return mfs_fail(err, -errno, "cannot open directory '%s': %s", dir,
				strerror(errno));
	rc = mfs_commit_file(fd, name, bytes, len, err);
	close(fd);
	return rc;
}

/* The signature is there before what it signs: lines without one are not seen. */
static int write_text(const struct command *c, const char *text, size_t len, struct mfs_error *err)
{
	size_t signature_len = 0;
	void *signature = NULL;
	char sig_file[4096];
	int rc = 0;

	snprintf(sig_file, sizeof(sig_file), "%s.sig", c->output);
	if (c->key)
		rc = mfs_signature_make(text, len, c->key, &signature, &signature_len, err);
	if (!rc && c->key)
		rc = commit(sig_file, signature, signature_len, err);
	if (!rc)
		rc = commit(c->output, text, len, err);
	free(signature);
	return rc;
}

static int write_sums(struct command *c, struct mfs_error *err)
{
	size_t len = 0;
	char *text = NULL;
	FILE *to = open_memstream(&text, &len);
	int rc = to ? 0 : mfs_fail_nomem(err);

	if (!rc) {
		print_lines(&c->tensors, to);
		if (fclose(to))
			rc = mfs_fail_nomem(err);
	}
	if (!rc)
		rc = write_text(c, text, len, err);
	free(text);
	return rc;
}

/* ---- the command ---- */

static int sum(struct command *c, struct mfs_error *err)
{
	struct mfs_tensors *t = &c->tensors;
	/* A key that does not sign costs no reading of weights. */
	int rc = c->sign ? mfs_signature_key(c->sign, &c->key, err) : 0;

	if (!rc)
		rc = list_tensors(c, err);
	if (!rc)
		rc = mfs_hash_all(t->ckpt, t->jobs, t->count, 0, err);
	for (uint32_t i = 0; i < t->count && !rc; i++)
		if (t->jobs[i].why)
			rc = mfs_fail(err, -EIO, "%s", t->jobs[i].why);
	if (rc)
		return rc;
	warn_of_padding(t);
	if (c->output)
		return write_sums(c, err);
	print_lines(t, stdout);
	return 0;
}

static int run(struct command *c)
{
	struct mfs_error err;
	int rc;

	if (c->sign && !c->output)
		return mfs_usage_error("sum: --sign needs --output FILE");
	rc = sum(c, &err);
	EVP_PKEY_free(c->key);
	mfs_tensors_release(&c->tensors);
	mfs_root_free(c->root);
	return rc ? mfs_command_failed("%s", err.msg) : MFS_EXIT_OK;
}

int mfs_cmd_sum(int argc, char **argv)
{
	struct command c = {0};
	struct mfs_cmdline line = {
		.usage = "sum SOURCE [--output FILE [--sign KEY]] [--optim] [-o OPTIONS]",
		.help = "Prints SHA-256 of each tensor of the model (of the latest iteration):\n"
			"the same lines for every format and layout of the same weights, and\n"
			"through the mount. Rows that only pad the vocabulary do not count.\n"
			"mcorefs verify --check compares a model with them.\n"
			"\n"
			"  --output FILE  write them to FILE\n"
			"  --sign KEY     and sign that, in FILE.sig, with a private key (PEM):\n"
			"                 Ed25519, Ed448, RSA or EC; openssl verifies it, too\n"
			"  --optim        tensors of the optimizer, too\n",
		.min = 1,
		.max = 1,
		.switches = {{"optim", &c.optim}},
		.valued = {{"output", MFS_VALUE_TEXT, &c.output},
			   {"sign", MFS_VALUE_TEXT, &c.sign}},
	};
	int exit_code;

	c.line = &line;
	if (mfs_cmdline_parse(&line, argc, argv, &exit_code))
		exit_code = run(&c);
	return mfs_cmdline_end(&line, exit_code);
}
