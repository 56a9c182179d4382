#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "formats/torch/pickle.h"
#include "formats/torch/pickle_write.h"

/* Values may be shared and may contain themselves: a walk needs a budget. */
#define BUDGET 2000
#define DEPTH  40

static unsigned visits;
unsigned fuzz_sink; /* keeps reads of strings from being optimised away */

static void walk(const struct mfs_pickle *doc, mfs_value v, unsigned depth);

static void walk_collection(const struct mfs_pickle *doc, mfs_value v, unsigned depth)
{
	uint32_t count = mfs_value_count(doc, v), pairs = mfs_value_pairs(doc, v);

	for (uint32_t i = 0; i < count && visits < BUDGET; i++)
		walk(doc, mfs_value_at(doc, v, i), depth);
	for (uint32_t i = 0; i < pairs && visits < BUDGET; i++) {
		mfs_value key = mfs_value_key(doc, v, i);
		const char *text;
		size_t len;

		walk(doc, key, depth);
		walk(doc, mfs_value_item(doc, v, i), depth);
		if (mfs_value_str(doc, key, &text, &len) && len < 64 && !memchr(text, 0, len)) {
			char name[64] = "";

			memcpy(name, text, len);
			fuzz_require(mfs_value_has(doc, v, name));
			fuzz_require(mfs_value_is_str(doc, key, name));
		}
	}
	fuzz_require(mfs_value_is_none(doc, mfs_value_at(doc, v, count)));
	fuzz_require(mfs_value_is_none(doc, mfs_value_item(doc, v, pairs)));
	fuzz_require(mfs_value_is_none(doc, mfs_value_key(doc, v, pairs)));
}

static unsigned touch(const void *bytes, size_t len)
{
	unsigned sum = 0;

	for (size_t i = 0; i < len; i++)
		sum += ((const uint8_t *)bytes)[i];
	return sum;
}

static void walk_scalar(const struct mfs_pickle *doc, mfs_value v)
{
	const uint8_t *data;
	const char *text;
	int64_t i;
	double f;
	size_t len;
	bool b, is_int = mfs_value_int(doc, v, &i);

	fuzz_require(!is_int || mfs_value_float(doc, v, &f));
	if (mfs_value_str(doc, v, &text, &len))
		fuzz_sink += touch(text, len);
	if (mfs_value_bytes(doc, v, &data, &len))
		fuzz_sink += touch(data, len);
	if (mfs_value_bool(doc, v, &b))
		fuzz_require(mfs_value_type(doc, v) == MFS_V_BOOL);
	text = mfs_value_class(doc, v, &len);
	fuzz_sink += touch(text, len);
}

static void walk(const struct mfs_pickle *doc, mfs_value v, unsigned depth)
{
	if (visits++ >= BUDGET || depth >= DEPTH)
		return;
	fuzz_require(mfs_value_type(doc, v) <= MFS_V_PERSID);
	walk_scalar(doc, v);
	walk_collection(doc, v, depth + 1);
	walk(doc, mfs_value_callable(doc, v), depth + 1);
	walk(doc, mfs_value_args(doc, v), depth + 1);
	walk(doc, mfs_value_state(doc, v), depth + 1);
	walk(doc, mfs_value_persid(doc, v), depth + 1);
	mfs_value_attr(doc, v, "args");
	mfs_value_is_object_of(doc, v, "Namespace");
	mfs_value_is_global(doc, v, "argparse", "Namespace");
}

/* ---- copies ---- */

#define COPY_LIMIT 16384

/* Copies the root into out; a copy may be refused, with a reason. */
static int copy_root(const struct mfs_pickle *doc, int protocol,
		     const struct mfs_pickle_hooks *hooks, struct mfs_buf *out)
{
	struct mfs_error err = {0}, end = {0};
	struct mfs_pickle_writer w;
	int rc;

	mfs_pickle_begin(&w, out, protocol);
	rc = mfs_pickle_copy(&w, doc, mfs_pickle_root(doc), hooks, &err);
	fuzz_require(mfs_pickle_end(&w, &end) == rc);
	fuzz_require(!rc || rc == -EINVAL || rc == -ENOTSUP);
	fuzz_require(!rc || (err.code == rc && err.msg[0]));
	return rc;
}

/* What was written must be readable. */
static struct mfs_pickle *parsed(const struct mfs_buf *b)
{
	struct mfs_pickle *doc;

	fuzz_require(!mfs_pickle_parse(b->data, b->len, "copy", NULL, &doc, NULL));
	fuzz_require(mfs_pickle_length(doc) == b->len);
	return doc;
}

/* The first copy may say things differently (bytes in protocol 2 are a call), later ones may
 * not. */
static void check_copies(const struct mfs_pickle *doc, int protocol)
{
	const struct mfs_pickle_hooks hooks = {.limit = COPY_LIMIT};
	struct mfs_buf out[3] = {0};
	struct mfs_pickle *copy[2] = {NULL};

	if (!copy_root(doc, protocol, &hooks, &out[0])) {
		copy[0] = parsed(&out[0]);
		if (!copy_root(copy[0], protocol, &hooks, &out[1])) {
			copy[1] = parsed(&out[1]);
			if (!copy_root(copy[1], protocol, &hooks, &out[2]))
				fuzz_require(out[1].len == out[2].len &&
					     !memcmp(out[1].data, out[2].data, out[1].len));
		}
	}
	for (int i = 0; i < 3; i++)
		mfs_buf_release(&out[i]);
	mfs_pickle_free(copy[0]);
	mfs_pickle_free(copy[1]);
}

static int some_pairs(void *arg, struct mfs_pickle_writer *w, mfs_value dict, const char *key,
		      size_t len, mfs_value value, struct mfs_error *err)
{
	(void)arg, (void)dict, (void)value, (void)err;
	if (len % 3 == 2)
		mfs_pickle_namen(w, key, len), mfs_pickle_int(w, -1);
	return len % 3 != 0;
}

static int one_more(void *arg, struct mfs_pickle_writer *w, mfs_value dict, struct mfs_error *err)
{
	(void)arg, (void)err;
	if (dict % 2)
		mfs_pickle_name(w, "added"), mfs_pickle_none(w);
	return 0;
}

static int some_values(void *arg, struct mfs_pickle_writer *w, mfs_value v, struct mfs_error *err)
{
	(void)arg, (void)err;
	if (v % 5)
		return 0;
	mfs_pickle_global(w, "torch", "Tensor");
	return 1;
}

static int renumber(void *arg, mfs_value persid, const char *key, size_t len, uint32_t *ret,
		    struct mfs_error *err)
{
	(void)arg, (void)persid, (void)err;
	fuzz_sink += touch(key, len);
	*ret = 70000;
	return 0;
}

static void check_changed_copy(const struct mfs_pickle *doc)
{
	const struct mfs_pickle_hooks hooks = {.pair = some_pairs,
					       .pairs_end = one_more,
					       .value = some_values,
					       .storage = renumber,
					       .limit = COPY_LIMIT};
	struct mfs_buf out = {0};

	if (!copy_root(doc, 2, &hooks, &out))
		mfs_pickle_free(parsed(&out));
	mfs_buf_release(&out);
}

static int parse_and_walk(const uint8_t *bytes, size_t len, const char *discard,
			  struct mfs_error *err)
{
	const struct mfs_pickle_options opt = {.discard_key = discard};
	struct mfs_pickle *doc;
	int rc = mfs_pickle_parse(bytes, len, "input.pkl", &opt, &doc, err);

	if (rc)
		return rc;
	fuzz_require(mfs_pickle_length(doc) > 0 && mfs_pickle_length(doc) <= len);
	fuzz_require(bytes[mfs_pickle_length(doc) - 1] == '.');
	visits = 0;
	walk(doc, mfs_pickle_root(doc), 0);
	check_copies(doc, 2);
	check_copies(doc, 4);
	check_changed_copy(doc);
	mfs_pickle_free(doc);
	return 0;
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	int rc = parse_and_walk(bytes, len, NULL, err);

	parse_and_walk(bytes, len, "all_local_plans", NULL);
	return rc;
}

FUZZ_TARGET
