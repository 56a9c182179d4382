#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "formats/pickle.h"

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
