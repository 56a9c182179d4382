/* The samples of a step: as JSON lines, or their tokens as files. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/base/path.h"
#include "formats/dataset/files/npy.h"
#include "formats/dataset/gpt/rows_samples.h"
#include "formats/io/commit.h"
#include "fs/cli/commands.h"
#include "fs/sample/sample.h"
#include "fs/cli/stop.h"

struct printer {
	const struct mfs_sample_plan *plan;
	struct mfs_samples *samples;
	const struct mfs_named_tokens *names; /* NULL: tokens are printed */
	const struct mfs_rows *rows;
	int64_t *tokens; /* of one sample */
	struct mfs_buf line;
};

/* ---- JSON ---- */

struct pieces {
	struct mfs_buf *to;
	bool any;
};

static int add_piece(void *arg, const struct mfs_gpt_piece *piece, struct mfs_error *err)
{
	struct pieces *p = arg;

	(void)err;
	mfs_buf_printf(p->to, "%s{\"sequence\": %llu, \"offset\": %u, \"length\": %u}",
		       p->any ? ", " : "", (unsigned long long)piece->sequence, piece->from,
		       piece->count);
	p->any = true;
	return 0;
}

static int add_pieces(struct printer *p, const struct mfs_samples_member *part, uint64_t sample,
		      struct mfs_error *err)
{
	struct pieces pieces = {&p->line, false};
	uint32_t padding;
	int rc;

	mfs_buf_adds(&p->line, ", \"pieces\": [");
	rc = mfs_gpt_dataset_pieces(part->gpt, sample, add_piece, &pieces, &padding, err);
	mfs_buf_adds(&p->line, "]");
	return rc;
}

static void add_tokens(struct printer *p)
{
	mfs_buf_adds(&p->line, ", \"tokens\": [");
	for (uint64_t i = 0; i < p->rows->row_length; i++)
		mfs_buf_printf(&p->line, "%s%lld", i ? ", " : "", (long long)p->tokens[i]);
	mfs_buf_adds(&p->line, "]");
}

static int add_text(struct printer *p, struct mfs_error *err)
{
	mfs_buf_adds(&p->line, ", \"text\": ");
	return mfs_sample_add_text(&p->line, p->names, p->tokens, p->rows->row_length, err);
}

static void add_loss_mask(struct printer *p)
{
	const uint64_t count = p->rows->row_length;

	if (!p->plan->loss_mask)
		return;
	/* Of inputs: the last token is a label alone. Padding counts as a label (gpt_dataset.py:
	 * _get_ltor_masks_and_position_ids, GPTDataset.__getitem__). */
	mfs_buf_adds(&p->line, ", \"loss_mask\": [");
	for (uint64_t i = 0; i + 1 < count; i++)
		mfs_buf_printf(&p->line, "%s%d", i ? ", " : "",
			       (p->plan->eod < 0 || p->tokens[i] != p->plan->eod) &&
				       (p->plan->pad < 0 || p->tokens[i + 1] != p->plan->pad));
	mfs_buf_adds(&p->line, "]");
}

static int read_sample(struct printer *p, uint64_t sample, int64_t *ret, struct mfs_error *err)
{
	const uint64_t length = p->rows->row_length;

	return mfs_rows_read_int64(p->rows, sample * length, length, ret, err);
}

static int format_sample(struct printer *p, const struct mfs_sample_drawn *d, struct mfs_error *err)
{
	const struct mfs_samples_member *part;
	int64_t sample;
	int16_t who;
	int rc = mfs_samples_locate(p->samples, d->sample, 1, &who, &sample, err);

	if (rc)
		return rc;
	part = mfs_samples_member(p->samples, (uint32_t)who);
	mfs_buf_printf(&p->line, "{\"step\": %llu, \"sample\": %llu",
		       (unsigned long long)p->plan->step, (unsigned long long)d->sample);
	if (p->plan->has_ranks)
		mfs_buf_printf(&p->line, ", \"micro_batch\": %llu, \"rank\": %u",
			       (unsigned long long)d->microbatch, d->rank);
	mfs_buf_adds(&p->line, ", \"dataset\": ");
	mfs_buf_add_json(&p->line, part->prefix);
	mfs_buf_printf(&p->line, ", \"dataset_id\": %d, \"dataset_sample\": %lld", who,
		       (long long)sample);
	rc = read_sample(p, d->sample, p->tokens, err);
	if (!rc)
		rc = add_pieces(p, part, (uint64_t)sample, err);
	if (rc)
		return rc;
	if (p->names)
		rc = add_text(p, err);
	else
		add_tokens(p);
	if (rc)
		return rc;
	add_loss_mask(p);
	mfs_buf_adds(&p->line, "}\n");
	return p->line.failed ? mfs_fail_nomem(err) : 0;
}

static int print_samples(struct printer *p, const struct mfs_sample_drawn *drawn, uint64_t count,
			 struct mfs_error *err)
{
	int rc = 0;

	p->tokens = calloc(p->rows->row_length, sizeof(*p->tokens));
	if (!p->tokens)
		return mfs_fail_nomem(err);
	for (uint64_t i = 0; i < count && !rc; i++) {
		p->line.len = 0;
		rc = format_sample(p, &drawn[i], err);
		if (!rc)
			fwrite(p->line.data, 1, p->line.len, stdout);
	}
	mfs_buf_release(&p->line);
	free(p->tokens);
	return rc;
}

/* ---- files ---- */

/* If it is interrupted, the file is whole or not there. A signal that came meanwhile counts
 * afterwards. */
static int commit(int dirfd, const char *name, const void *bytes, size_t len, struct mfs_error *err)
{
	int rc;

	mfs_stop_on_signals();
	rc = mfs_commit_file(dirfd, name, bytes, len, err);
	mfs_stop_at_once();
	return mfs_stop_requested ? mfs_fail(err, -EINTR, "interrupted") : rc;
}

static int write_file(const char *path, const void *bytes, size_t len, struct mfs_error *err)
{
	char *dir;
	int fd, rc;

	if (!strcmp(path, "-")) {
		fwrite(bytes, 1, len, stdout);
		return 0;
	}
	dir = mfs_path_parent(path);
	if (!dir)
		return mfs_fail_nomem(err);
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		rc = mfs_fail_errno(err, "'%s'", dir);
	else
		rc = commit(fd, mfs_path_base(path), bytes, len, err);
	if (fd >= 0)
		close(fd);
	free(dir);
	return rc;
}

/* Makes a header of .npy and then the tokens, which begin at *ret_header. */
static int make_array(struct printer *p, const struct mfs_sample_drawn *drawn, uint64_t count,
		      uint8_t **ret, size_t *ret_header, size_t *ret_size, struct mfs_error *err)
{
	const uint64_t shape[] = {count, p->rows->row_length};
	uint8_t header[MFS_NPY_HEADER_MAX], *bytes;
	const size_t before = mfs_npy_header(MFS_I64, shape, 2, header);
	uint64_t tokens, size;
	int rc = 0;

	if (mfs_mul_overflows(shape[0], shape[1], &tokens) || mfs_mul_overflows(tokens, 8, &size) ||
	    mfs_add_overflows(size, before, &size))
		return mfs_fail(err, -EINVAL, "%llu samples are too many",
				(unsigned long long)count);
	bytes = malloc(size);
	if (!bytes)
		return mfs_fail_nomem(err);
	memcpy(bytes, header, before);
	for (uint64_t i = 0; i < count && !rc; i++)
		rc = read_sample(p, drawn[i].sample, (int64_t *)(bytes + before) + i * shape[1],
				 err);
	if (rc) {
		free(bytes);
		return rc;
	}
	*ret = bytes;
	*ret_header = before;
	*ret_size = size;
	return 0;
}

static int write_files(struct printer *p, const struct mfs_sample_options *o,
		       const struct mfs_sample_drawn *drawn, uint64_t count, struct mfs_error *err)
{
	size_t header, size;
	uint8_t *bytes;
	int rc = make_array(p, drawn, count, &bytes, &header, &size, err);

	if (rc)
		return rc;
	if (o->npy)
		rc = write_file(o->npy, bytes, size, err);
	if (!rc && o->bin)
		rc = write_file(o->bin, bytes + header, size - header, err);
	free(bytes);
	return rc;
}

int mfs_sample_output(const struct mfs_sample_options *o, const struct mfs_sample_plan *plan,
		      struct mfs_samples *samples, const struct mfs_named_tokens *names,
		      const struct mfs_sample_drawn *drawn, uint64_t count)
{
	struct printer p = {.plan = plan, .samples = samples, .names = names};
	struct mfs_rows *rows;
	struct mfs_error err;
	int rc = mfs_rows_samples(samples, "the run's samples", 0, &rows, &err);

	if (rc)
		return mfs_command_failed("%s", err.msg);
	p.rows = rows;
	rc = o->npy || o->bin ? write_files(&p, o, drawn, count, &err)
			      : print_samples(&p, drawn, count, &err);
	mfs_rows_free(rows);
	if (!rc)
		return MFS_EXIT_OK;
	mfs_command_failed("step %llu: %s", (unsigned long long)plan->step, err.msg);
	return mfs_stop_code(MFS_EXIT_FAILED);
}
