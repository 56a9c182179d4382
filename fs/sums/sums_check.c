#include "fs/sums/sums_check.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/str.h"
#include "formats/ckpt/ckpt.h"
#include "formats/io/slurp.h"
#include "fs/sums/signature.h"

struct check {
	struct mfs_tensors *tensors;
	const struct mfs_sums *want;
	const char *file;
	void (*report)(void *arg, const struct mfs_error *what);
	void *arg;
};

static void problem(const struct check *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void problem(const struct check *c, const char *fmt, ...)
{
	struct mfs_error what;
	char text[640];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	mfs_error_set(&what, -EINVAL, "%s", text);
	c->report(c->arg, &what);
}

/* Padding is not signed, whatever it holds. */
static bool is_padded(const struct mfs_tensors *t, uint32_t i, const struct mfs_sum *want)
{
	return mfs_global_tensor_is_vocabulary(t->jobs[i].t) && !t->vocabulary &&
	       t->sums[i].shape[0] > want->shape[0];
}

/* True if the tensor has type and shape of the sums, so that its bytes can be compared. */
static bool is_comparable(const struct check *c, uint32_t i, const struct mfs_sum *want)
{
	char shape[2][24 * MFS_MAX_DIMS];
	struct mfs_sum found = c->tensors->sums[i];

	if (found.ndim == want->ndim && is_padded(c->tensors, i, want))
		found.shape[0] = want->shape[0];
	if (found.dtype == want->dtype && found.ndim == want->ndim &&
	    !memcmp(found.shape, want->shape, sizeof(found.shape))) {
		c->tensors->jobs[i].rows = want->shape[0];
		return true;
	}
	problem(c, "tensor '%s': expected %s %s, found %s %s", want->name,
		mfs_dtype_name(want->dtype),
		mfs_shape_text(want->shape, want->ndim, shape[0], sizeof(shape[0])),
		mfs_dtype_name(found.dtype),
		mfs_shape_text(found.shape, found.ndim, shape[1], sizeof(shape[1])));
	return false;
}

/* If all weights of a model have another type, it is the same model cast, or an unrelated one: one
 * sentence is enough. */
static bool is_cast(const struct check *c)
{
	const struct mfs_tensors *t = c->tensors;
	uint32_t found = 0, same = 0;
	const struct mfs_sum *want, *first = NULL;

	for (uint32_t i = 0; i < t->count; i++) {
		want = mfs_sums_find(c->want, t->sums[i].name);
		if (!want)
			continue;
		found++;
		same += want->dtype == t->sums[i].dtype;
		if (!first && want->dtype != t->sums[i].dtype)
			first = &t->sums[i];
	}
	if (!first || found < 2 || 2 * same > found)
		return false;
	problem(c,
		"the weights are cast: tensor '%s' is %s, and %s where %s was made; sums are of "
		"weights as they are stored, so verify a view that does not cast",
		first->name, mfs_dtype_name(first->dtype),
		mfs_dtype_name(mfs_sums_find(c->want, first->name)->dtype), c->file);
	return true;
}

/* Pairs tensors with lines, and keeps the jobs of those that can be compared, in front. Returns
 * their number. */
static uint32_t pair_up(const struct check *c)
{
	const struct mfs_tensors *t = c->tensors;
	uint32_t kept = 0, i = 0, k = 0;

	while (i < t->count || k < c->want->count) {
		const int order = i == t->count ? 1
				  : k == c->want->count
					  ? -1
					  : strcmp(t->sums[i].name, c->want->list[k].name);

		if (order < 0)
			problem(c, "tensor '%s' is not in %s", t->sums[i].name, c->file);
		else if (order > 0)
			problem(c, "tensor '%s' of %s is missing", c->want->list[k].name, c->file);
		else if (is_comparable(c, i, &c->want->list[k]))
			t->jobs[kept++] = t->jobs[i];
		i += order <= 0;
		k += order >= 0;
	}
	return kept;
}

static bool is_right(const struct check *c, const struct mfs_hash_job *job)
{
	char found[2 * MFS_SHA256_BYTES + 1], expected[sizeof(found)], name[MFS_CKPT_NAME_SIZE];
	const struct mfs_sum *s;

	mfs_global_tensor_name(job->t, name, sizeof(name));
	s = mfs_sums_find(c->want, name);
	if (job->why) {
		problem(c, "%s", job->why);
		return false;
	}
	if (!memcmp(job->sha256, s->sha256, MFS_SHA256_BYTES))
		return true;
	mfs_str_hex(job->sha256, MFS_SHA256_BYTES, found);
	mfs_str_hex(s->sha256, MFS_SHA256_BYTES, expected);
	problem(c, "tensor '%s': SHA-256 is %s, %s says %s", name, found, c->file, expected);
	return false;
}

int mfs_sums_check(struct mfs_tensors *t, const struct mfs_sums *want, const char *file,
		   void (*report)(void *arg, const struct mfs_error *what), void *arg,
		   uint32_t *ret_right, struct mfs_error *err)
{
	const struct check c = {
		.tensors = t, .want = want, .file = file, .report = report, .arg = arg};
	uint32_t right = 0;
	int rc;

	*ret_right = 0;
	if (is_cast(&c))
		return 0;
	t->count = pair_up(&c);
	rc = mfs_hash_all(t->ckpt, t->jobs, t->count, 0, err);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < t->count; i++)
		right += is_right(&c, &t->jobs[i]);
	*ret_right = right;
	return 0;
}

int mfs_sums_read(const struct mfs_sums_source *from, struct mfs_sums *ret, struct mfs_error *err)
{
	char sig_file[4096];
	size_t len;
	void *text;
	int rc = mfs_slurp(from->file, MFS_SUMS_MAX_BYTES, &text, &len, err);

	if (rc)
		return rc;
	snprintf(sig_file, sizeof(sig_file), "%s.sig", from->file);
	if (from->key)
		rc = mfs_signature_check(text, len, from->file, from->key,
					 from->signature ? from->signature : sig_file, err);
	if (!rc)
		rc = mfs_sums_parse(text, len, from->file, ret, err);
	free(text);
	return rc;
}
