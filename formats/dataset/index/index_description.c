#include "formats/dataset/index/index_description.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dataset/gpt/blend.h"
#include "formats/dataset/gpt/gpt_dataset.h"
#include "formats/dataset/index/python_json.h"

/* ---- values ---- */

static int no_value(const char *key, struct mfs_error *err)
{
	return mfs_fail(err, -ENOTSUP,
			"a description whose '%s' is not what this version of Megatron writes",
			key);
}

static int get_string(const json_t *o, const char *key, const char **ret, struct mfs_error *err)
{
	*ret = json_string_value(json_object_get(o, key));
	return *ret ? 0 : no_value(key, err);
}

/* An integer from 0 to max; null: MFS_GPT_ONE_EPOCH. */
static int get_count(const json_t *o, const char *key, uint64_t max, uint64_t *ret,
		     struct mfs_error *err)
{
	const json_t *value = json_object_get(o, key);

	*ret = MFS_GPT_ONE_EPOCH;
	if (json_is_null(value))
		return 0;
	if (!json_is_integer(value) || json_integer_value(value) < 0 ||
	    (uint64_t)json_integer_value(value) > max)
		return no_value(key, err);
	*ret = (uint64_t)json_integer_value(value);
	return 0;
}

static int get_u32(const json_t *o, const char *key, uint32_t *ret, struct mfs_error *err)
{
	uint64_t n;
	int rc = get_count(o, key, UINT32_MAX, &n, err);

	if (!rc && n == MFS_GPT_ONE_EPOCH)
		rc = no_value(key, err);
	if (!rc)
		*ret = (uint32_t)n;
	return rc;
}

static int get_split(const json_t *o, const char *key, enum mfs_split *ret, struct mfs_error *err)
{
	const char *name;
	int rc = get_string(o, key, &name, err);

	if (rc)
		return rc;
	for (*ret = MFS_TRAIN; *ret < MFS_SPLITS; ++*ret)
		if (!strcmp(name, mfs_split_name(*ret)))
			return 0;
	return no_value(key, err);
}

/* ---- one dataset ---- */

/* What all members of a blend have in common is taken from the first; that it is so shows when the text is written
 * again. */
static int read_run(struct mfs_index_description *d, const json_t *o, struct mfs_error *err)
{
	int rc = get_split(o, "index_split", &d->split, err);

	if (!rc)
		rc = get_u32(o, "random_seed", &d->run.seed, err);
	if (!rc)
		rc = get_u32(o, "sequence_length", &d->run.seq_length, err);
	d->run.split = json_string_value(json_object_get(o, "split"));
	d->run.tokenizer = json_object_get(o, "tokenizer");
	return rc;
}

static int read_member(const json_t *o, struct mfs_index_member *m, struct mfs_error *err)
{
	const char *key = json_object_get(o, "path_prefix") ? "path_prefix" : "dataset_path";
	int rc = get_string(o, key, &m->path, err);

	return rc ? rc : get_count(o, "num_samples", (uint64_t)1 << 53, &m->samples, err);
}

/* ---- blends ---- */

/* Integers: lengths of an exhaustive blend; else weights. */
static int read_weights(struct mfs_index_description *d, const json_t *list, struct mfs_error *err)
{
	double *weights = calloc(d->count, sizeof(*weights));
	uint64_t *lengths = calloc(d->count, sizeof(*lengths));
	const bool exhaustive = d->weights.size == MFS_GPT_ONE_EPOCH;
	bool good = true;

	d->weights.weights = weights;
	d->weights.lengths = lengths;
	if (!weights || !lengths)
		return mfs_fail_nomem(err);
	for (size_t i = 0; i < d->count; i++) {
		const json_t *value = json_array_get(list, i);

		weights[i] = json_real_value(value);
		lengths[i] = (uint64_t)json_integer_value(value);
		good = good && (exhaustive ? json_integer_value(value) > 0 : weights[i] > 0);
	}
	if (!exhaustive) {
		free(lengths);
		d->weights.lengths = NULL;
	}
	return good ? 0 : no_value("weights", err);
}

static int read_blend(struct mfs_index_description *d, struct mfs_error *err)
{
	const json_t *list = json_object_get(d->root, "datasets");
	const json_t *weights = json_object_get(d->root, "weights");
	int rc;

	d->count = json_array_size(list);
	if (!d->count || d->count > MFS_BLEND_MAX || json_array_size(weights) != d->count)
		return no_value("datasets", err);
	rc = get_count(d->root, "size", (uint64_t)1 << 53, &d->weights.size, err);
	if (!rc)
		rc = read_weights(d, weights, err);
	if (!rc)
		rc = read_run(d, json_array_get(list, 0), err);
	if (rc)
		return rc;
	d->members = calloc(d->count, sizeof(*d->members));
	if (!d->members)
		return mfs_fail_nomem(err);
	for (size_t i = 0; i < d->count && !rc; i++)
		rc = read_member(json_array_get(list, i), &d->members[i], err);
	return rc;
}

static int read_gpt(struct mfs_index_description *d, struct mfs_error *err)
{
	int rc = read_run(d, d->root, err);

	if (rc)
		return rc;
	d->count = 1;
	d->members = calloc(1, sizeof(*d->members));
	return d->members ? read_member(d->root, d->members, err) : mfs_fail_nomem(err);
}

/* ---- all ---- */

static int read_description(struct mfs_index_description *d, struct mfs_error *err)
{
	const char *class;
	int rc = get_string(d->root, "class", &class, err);

	if (rc)
		return rc;
	if (!strcmp(class, "GPTDataset"))
		return read_gpt(d, err);
	if (strcmp(class, "BlendedDataset"))
		return mfs_fail(err, -ENOTSUP, "a description of a %.60s", class);
	d->blend = true;
	return read_blend(d, err);
}

static int write_again(const struct mfs_index_description *d, const char *text, size_t len,
		       struct mfs_error *err)
{
	struct mfs_index_key key;
	bool same;
	int rc = d->blend ? mfs_index_key_blend(&d->run, d->members, d->count, &d->weights,
						d->split, &key, err)
			  : mfs_index_key_gpt(&d->run, d->members, d->split, &key, err);

	if (rc)
		return rc;
	same = key.len == len && !memcmp(key.text, text, len);
	mfs_index_key_release(&key);
	if (!same)
		return mfs_fail(
			err, -ENOTSUP,
			"a description that this version of Megatron would write otherwise");
	return 0;
}

static int load(const char *text, size_t len, json_t **ret, struct mfs_error *err)
{
	json_error_t where;

	if (len > MFS_PYTHON_JSON_MAX)
		return mfs_fail(err, -ENOTSUP, "a description of %zu bytes", len);
	*ret = json_loadb(text, len, JSON_REJECT_DUPLICATES, &where);
	if (!*ret)
		return mfs_fail(err, -EINVAL, "a description that is no JSON at line %d, column %d",
				where.line, where.column);
	if (json_is_object(*ret))
		return 0;
	json_decref(*ret);
	return mfs_fail(err, -EINVAL, "a description that is no JSON object");
}

int mfs_index_description_parse(const char *text, size_t len, const struct mfs_dataset_rules *rules,
				struct mfs_index_description *ret, struct mfs_error *err)
{
	struct mfs_index_description d = {.run.rules = *rules};
	int rc = load(text, len, &d.root, err);

	if (rc)
		return rc;
	rc = read_description(&d, err);
	if (!rc)
		rc = write_again(&d, text, len, err);
	if (rc) {
		mfs_index_description_release(&d);
		return rc;
	}
	*ret = d;
	return 0;
}

void mfs_index_description_release(struct mfs_index_description *d)
{
	free(d->members);
	free((void *)d->weights.weights);
	free((void *)d->weights.lengths);
	json_decref(d->root);
	*d = (struct mfs_index_description){0};
}
