#include "formats/dataset/index/index_key.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>

#include "formats/base/str.h"
#include "formats/dataset/gpt/gpt_dataset.h"
#include "formats/dataset/index/python_json.h"

/* ---- versions ---- */

static bool is_first_core(const struct mfs_dataset_rules *rules)
{
	return rules->core == MFS_INDEX_FIRST_CORE;
}

static bool names_split(const struct mfs_dataset_rules *rules)
{
	return rules->core >= 7;
}

static bool names_renormalize(const struct mfs_dataset_rules *rules)
{
	return rules->core == 9 || rules->core == 10;
}

static int check_run(const struct mfs_index_run *run, struct mfs_error *err)
{
	if (run->rules.core < MFS_INDEX_FIRST_CORE)
		return mfs_fail(
			err, -ENOTSUP,
			"the names of cached indices of Megatron-LM before core 0.4 are not "
			"supported");
	if (!is_first_core(&run->rules) && !json_is_object(run->tokenizer))
		return mfs_fail(
			err, -EINVAL,
			"Megatron names its cached indices after the tokenizer, too, and the "
			"tokenizer is not known");
	return 0;
}

/* ---- values ---- */

/* A string of any bytes: Python also takes a path that is not UTF-8 (python_json.h). */
static json_t *any_string(const char *s)
{
	return s ? json_string_nocheck(s) : json_null();
}

static json_t *samples_or_null(uint64_t samples)
{
	return samples == MFS_GPT_ONE_EPOCH ? json_null() : json_integer((json_int_t)samples);
}

/* Takes value over, which may be NULL: no memory. */
static bool set(json_t *object, const char *key, json_t *value)
{
	return !json_object_set_new(object, key, value);
}

/* list, if memory was found for all elements; else NULL. */
static json_t *complete(json_t *list, size_t count)
{
	if (json_array_size(list) == count)
		return list;
	json_decref(list);
	return NULL;
}

/* Book-ends of each split, or null. The first one is an integer: the sums that Megatron makes begin
 * with 0. */
static json_t *split_matrix(const struct mfs_splits *splits)
{
	json_t *matrix = json_array();

	for (unsigned i = 0; matrix && i < MFS_SPLITS; i++) {
		const struct mfs_split_share *share = &splits->share[i];
		json_t *row = json_null();

		if (share->end > share->begin) {
			row = json_array();
			json_array_append_new(row, i ? json_real(share->begin) : json_integer(0));
			json_array_append_new(row, json_real(share->end));
			row = complete(row, 2);
		}
		json_array_append_new(matrix, row);
	}
	return complete(matrix, MFS_SPLITS);
}

static int set_split_matrix(const struct mfs_index_run *run, json_t *object, struct mfs_error *err)
{
	struct mfs_splits splits;
	int rc;

	if (!run->split)
		return set(object, "split_matrix", json_null()) ? 0 : mfs_fail_nomem(err);
	rc = mfs_splits_parse(run->split, &run->rules, &splits, err);
	if (rc)
		return rc;
	return set(object, "split_matrix", split_matrix(&splits)) ? 0 : mfs_fail_nomem(err);
}

/* ---- keys ---- */

/* The identifiers of a GPTDataset in Megatron's order; *ret is to be released. */
static int identify(const struct mfs_index_run *run, const struct mfs_index_member *dataset,
		    enum mfs_split split, json_t **ret, struct mfs_error *err)
{
	const bool first_core = is_first_core(&run->rules);
	json_t *o = json_object();
	bool done =
		o && set(o, "class", json_string("GPTDataset")) &&
		set(o, first_core ? "path_prefix" : "dataset_path", any_string(dataset->path)) &&
		set(o, "num_samples", samples_or_null(dataset->samples)) &&
		set(o, "index_split", json_string(mfs_split_name(split))) &&
		(!first_core || set(o, "split", any_string(run->split))) &&
		set(o, "random_seed", json_integer(run->seed)) &&
		set(o, "sequence_length", json_integer(run->seq_length)) &&
		(first_core || set(o, "split", any_string(run->split)));
	int rc = done ? 0 : mfs_fail_nomem(err);

	if (!rc && !first_core) {
		rc = set_split_matrix(run, o, err);
		if (!rc && json_object_set(o, "tokenizer", run->tokenizer))
			rc = mfs_fail_nomem(err);
	}
	if (rc) {
		json_decref(o);
		return rc;
	}
	*ret = o;
	return 0;
}

static json_t *weight_list(const struct mfs_index_weights *w, size_t count)
{
	json_t *list = json_array();

	for (size_t i = 0; list && i < count; i++)
		json_array_append_new(list, w->lengths ? json_integer((json_int_t)w->lengths[i])
						       : json_real(w->weights[i]));
	return complete(list, count);
}

static int identify_blend(const struct mfs_index_run *run, const struct mfs_index_member *datasets,
			  size_t count, const struct mfs_index_weights *w, enum mfs_split split,
			  json_t *o, struct mfs_error *err)
{
	json_t *members = json_array(), *member;
	const struct mfs_dataset_rules *rules = &run->rules;
	bool done = members && set(o, "class", json_string("BlendedDataset")) &&
		    set(o, "datasets", members);
	int rc = 0;

	for (size_t i = 0; i < count && done && !rc; i++) {
		rc = identify(run, &datasets[i], split, &member, err);
		done = rc || !json_array_append_new(members, member);
	}
	if (rc)
		return rc;
	done = done &&
	       (!names_split(rules) || set(o, "split", json_string(mfs_split_name(split)))) &&
	       set(o, "weights", weight_list(w, count)) &&
	       set(o, "size", w->lengths ? json_null() : json_integer((json_int_t)w->size)) &&
	       (!names_renormalize(rules) ||
		set(o, "renormalize_blend_weights", json_boolean(rules->renormalize)));
	return done ? 0 : mfs_fail_nomem(err);
}

static int make_key(json_t *identifiers, struct mfs_index_key *ret, struct mfs_error *err)
{
	struct mfs_index_key key = {0};
	int rc = mfs_python_json(identifiers, &key.text, &key.len, err);

	if (!rc)
		rc = mfs_index_digest(key.text, key.len, key.digest, err);
	if (rc) {
		mfs_index_key_release(&key);
		return rc;
	}
	*ret = key;
	return 0;
}

int mfs_index_key_gpt(const struct mfs_index_run *run, const struct mfs_index_member *dataset,
		      enum mfs_split split, struct mfs_index_key *ret, struct mfs_error *err)
{
	json_t *o;
	int rc = check_run(run, err);

	if (!rc)
		rc = identify(run, dataset, split, &o, err);
	if (rc)
		return rc;
	rc = make_key(o, ret, err);
	json_decref(o);
	return rc;
}

int mfs_index_key_blend(const struct mfs_index_run *run, const struct mfs_index_member *datasets,
			size_t count, const struct mfs_index_weights *weights, enum mfs_split split,
			struct mfs_index_key *ret, struct mfs_error *err)
{
	int rc = check_run(run, err);
	json_t *o;

	if (rc)
		return rc;
	o = json_object();
	rc = o ? identify_blend(run, datasets, count, weights, split, o, err) : mfs_fail_nomem(err);
	if (!rc)
		rc = make_key(o, ret, err);
	json_decref(o);
	return rc;
}

void mfs_index_key_release(struct mfs_index_key *key)
{
	free(key->text);
	*key = (struct mfs_index_key){0};
}

/* ---- names ---- */

/* Machines in FIPS mode have no MD5 unless asked for one that is not for security. */
int mfs_index_digest(const void *bytes, size_t len, char ret[MFS_INDEX_DIGEST_SIZE],
		     struct mfs_error *err)
{
	EVP_MD *md5 = EVP_MD_fetch(NULL, "MD5", "-fips");
	uint8_t sum[EVP_MAX_MD_SIZE];
	unsigned size = 0;
	const bool done = md5 && EVP_Digest(bytes, len, sum, &size, md5, NULL) == 1 &&
			  2 * size + 1 == MFS_INDEX_DIGEST_SIZE;

	EVP_MD_free(md5);
	if (!done)
		return mfs_fail(err, -ENOTSUP, "libcrypto has no MD5 here");
	mfs_str_hex(sum, size, ret);
	return 0;
}

void mfs_index_name(const char *digest, const char *dataset, enum mfs_split split, const char *what,
		    const struct mfs_dataset_rules *rules, char ret[MFS_INDEX_NAME_SIZE])
{
	if (names_split(rules))
		snprintf(ret, MFS_INDEX_NAME_SIZE, "%s-%s-%s-%s", digest, dataset,
			 mfs_split_name(split), what);
	else
		snprintf(ret, MFS_INDEX_NAME_SIZE, "%s-%s-%s", digest, dataset, what);
}
