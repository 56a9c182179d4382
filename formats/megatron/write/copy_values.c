#include "formats/megatron/write/copy_values.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/*
 * Limits for one value. A rank's random states are 10 kB of pickle and five tensors of 5 kB;
 * --data-parallel-random-init has them for every data-parallel rank. References count, since a few
 * bytes can refer to one value many times.
 */
#define MAX_PICKLE     (UINT64_C(16) << 20)
#define MAX_STORAGES   (UINT64_C(16) << 20)
#define MAX_REFERENCES (1u << 16)

struct copy {
	const struct mfs_copy_sink *to;
	const struct mfs_torch_file *src;
	uint32_t *numbers; /* in the new archive, plus 1, by record of src; 0: not read yet */
	uint64_t bytes;
	uint32_t references;
	bool named; /* the message of a failure names the file */
};

static int read_storage(struct copy *c, const struct mfs_zip_entry *e, uint32_t *number,
			struct mfs_error *err)
{
	const uint64_t left = MAX_STORAGES - c->bytes;
	void *bytes;
	int rc;

	if (e->size > left)
		return mfs_fail(err, -ENOTSUP,
				"%s: random states and gradient scaler have more than %llu bytes",
				c->src->zip.src.name, (unsigned long long)MAX_STORAGES);
	rc = mfs_torch_file_read(c->src, e, c->to->arena, &bytes, err);
	if (!rc)
		rc = c->to->add(c->to->arg, bytes, e->size, number, err);
	if (rc)
		return rc;
	c->bytes += e->size;
	++*number;
	return 0;
}

static int copy_storage(void *arg, mfs_value persid, const char *key, size_t key_len, uint32_t *ret,
			struct mfs_error *err)
{
	struct copy *c = arg;
	const struct mfs_zip_entry *e = mfs_torch_file_storage(c->src, key, key_len);
	uint32_t *number;
	int rc = 0;

	(void)persid;
	c->named = true;
	if (!e)
		return mfs_fail(err, -EINVAL, "%s: record 'data/%.*s' of a tensor is missing",
				c->src->zip.src.name, (int)(key_len < 64 ? key_len : 64), key);
	if (c->references++ == MAX_REFERENCES)
		return mfs_fail(err, -ENOTSUP,
				"%s: random states and gradient scaler have more than %u tensors",
				c->src->zip.src.name, MAX_REFERENCES);
	number = &c->numbers[e - c->src->zip.entries];
	if (!*number)
		rc = read_storage(c, e, number, err);
	if (rc)
		return rc;
	c->named = false;
	*ret = *number - 1;
	return 0;
}

int mfs_copy_value(const struct mfs_copy_sink *to, const struct mfs_torch_file *src,
		   mfs_value value, struct mfs_error *err)
{
	struct copy c = {.to = to, .src = src};
	const struct mfs_pickle_hooks hooks = {
		.arg = &c, .storage = copy_storage, .limit = MAX_PICKLE};
	int rc;

	c.numbers = calloc(src->zip.count, sizeof(*c.numbers));
	if (!c.numbers)
		return mfs_fail_nomem(err);
	rc = mfs_pickle_copy(to->w, src->doc, value, &hooks, err);
	free(c.numbers);
	if (rc && !c.named)
		mfs_fail_in(err, "%s", src->zip.src.name);
	return rc;
}

/* ---- parameter groups ---- */

bool mfs_copy_is_key(const char *key, size_t len, const char *what)
{
	return strlen(what) == len && !memcmp(key, what, len);
}

/* Written as an int: Apex' and Transformer Engine's optimizers need one, and torch's takes both. */
void mfs_copy_step(struct mfs_pickle_writer *w, double step)
{
	mfs_pickle_name(w, "step");
	/* Only a whole number that a double holds exactly becomes an int. */
	if (fabs(step) < 0x1p53 && step == trunc(step))
		mfs_pickle_int(w, (int64_t)step);
	else
		mfs_pickle_float(w, step);
}

int mfs_copy_refuse(void *arg, mfs_value persid, const char *key, size_t key_len, uint32_t *ret,
		    struct mfs_error *err)
{
	(void)arg, (void)persid, (void)key, (void)key_len, (void)ret;
	return mfs_fail(err, -ENOTSUP, "the optimizer's settings contain a tensor");
}
