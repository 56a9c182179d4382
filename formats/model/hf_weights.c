#include "formats/model/hf_weights.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/arena.h"
#include "formats/base/buf.h"
#include "formats/base/bytes.h"
#include "formats/base/grow.h"
#include "formats/hf/safetensors.h"
#include "formats/model/model.h"
#include "formats/plan/vfile.h"

/* ---- the list ---- */

int mfs_hf_weights_add(struct mfs_hf_weights *w, const struct mfs_target *t, uint32_t unit,
		       struct mfs_error *err)
{
	uint64_t elements;

	if (mfs_add_overflows(w->bytes, t->bytes, &w->bytes))
		return mfs_fail(err, -EINVAL, "%s: a model of more than 2^64 bytes",
				mfs_ckpt_dir(t->ckpt));
	if (mfs_grow(&w->items, w->count))
		return mfs_fail_nomem(err);
	w->items[w->count++] = (struct mfs_hf_weight){t, unit};
	mfs_shape_count(t->shape, t->ndim, &elements);
	w->parameters += elements;
	return 0;
}

int mfs_hf_weights_add_model(struct mfs_hf_weights *w, const struct mfs_model *model,
			     struct mfs_error *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < model->target_count && !rc; i++)
		rc = mfs_hf_weights_add(w, &model->targets[i].base, model->targets[i].unit, err);
	return rc;
}

void mfs_hf_weights_release(struct mfs_hf_weights *w)
{
	free(w->items);
	*w = (struct mfs_hf_weights){0};
}

/* ---- shards ---- */

struct cutter {
	struct mfs_hf_shard *shards;
	uint32_t count;
};

static int begin_shard(struct cutter *c, uint32_t first)
{
	if (mfs_grow(&c->shards, c->count))
		return -ENOMEM;
	c->shards[c->count++] = (struct mfs_hf_shard){.first = first};
	return 0;
}

/* One past the last tensor of the unit that begins at first. */
static uint32_t unit_end(const struct mfs_hf_weights *w, uint32_t first, uint64_t *ret_bytes)
{
	uint32_t i = first;

	*ret_bytes = 0;
	for (; i < w->count && w->items[i].unit == w->items[first].unit; i++)
		*ret_bytes += w->items[i].target->bytes;
	return i;
}

/* Adds tensors [first, end). Begins another shard if they do not fit, or before one that does
 * not. */
static int add_tensors(struct cutter *c, const struct mfs_hf_weights *w, uint32_t first,
		       uint32_t end, uint64_t bytes, uint64_t limit)
{
	struct mfs_hf_shard *s = c->count ? &c->shards[c->count - 1] : NULL;

	if (!s || (s->count && s->bytes + bytes > limit)) {
		if (begin_shard(c, first))
			return -ENOMEM;
		s = &c->shards[c->count - 1];
	}
	if (bytes > limit && end - first > 1) {
		for (uint32_t i = first; i < end; i++)
			if (add_tensors(c, w, i, i + 1, w->items[i].target->bytes, limit))
				return -ENOMEM;
		return 0;
	}
	s->count += end - first;
	s->bytes += bytes;
	return 0;
}

int mfs_hf_cut_shards(const struct mfs_hf_weights *w, uint64_t limit, struct mfs_hf_shard **ret,
		      uint32_t *ret_count, struct mfs_error *err)
{
	struct cutter c = {0};

	for (uint32_t i = 0, end; i < w->count; i = end) {
		uint64_t bytes;

		end = unit_end(w, i, &bytes);
		if (add_tensors(&c, w, i, end, bytes, limit)) {
			free(c.shards);
			return mfs_fail_nomem(err);
		}
	}
	*ret = c.shards;
	*ret_count = c.count;
	return 0;
}

/* ---- one safetensors file ---- */

/* A target and its name: finds the target again after the header has sorted the names. */
struct named {
	const char *name;
	const struct mfs_target *target;
};

static int by_name(const void *a, const void *b)
{
	const struct named *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static const char *copy_name(struct mfs_arena *arena, const struct mfs_target *t)
{
	char name[MFS_CKPT_NAME_SIZE];
	size_t len = mfs_target_name(t, name, sizeof(name));

	return len < sizeof(name) ? mfs_arena_strndup(arena, name, len) : NULL;
}

static int describe(struct mfs_arena *arena, const struct mfs_target *t,
		    struct mfs_safetensors_tensor *tensor, struct named *named)
{
	*tensor = (struct mfs_safetensors_tensor){.dtype = t->dtype, .ndim = t->ndim};
	memcpy(tensor->shape, t->shape, t->ndim * sizeof(*t->shape));
	tensor->name = copy_name(arena, t);
	*named = (struct named){tensor->name, t};
	return tensor->name ? 0 : -ENOMEM;
}

static int add_header(struct mfs_vfile *f, const struct mfs_safetensors_tensor *tensors,
		      uint32_t count, struct mfs_error *err)
{
	struct mfs_buf header = {0};
	int rc;

	mfs_safetensors_header(tensors, count, &header);
	if (header.failed)
		rc = mfs_fail_nomem(err);
	else
		rc = mfs_vfile_add_literal(f, header.data, header.len, err);
	if (rc)
		mfs_buf_release(&header);
	return rc;
}

static int fill_file(struct mfs_vfile *f, const struct mfs_safetensors_tensor *tensors,
		     const struct named *named, uint32_t count, struct mfs_error *err)
{
	int rc = add_header(f, tensors, count, err);

	for (uint32_t i = 0; i < count && !rc; i++) {
		const struct named key = {.name = tensors[i].name};
		const struct named *found = bsearch(&key, named, count, sizeof(key), by_name);

		rc = mfs_vfile_add_tensor(f, found->target, err);
	}
	return rc;
}

static int safetensors_file(const struct mfs_hf_weights *w, const struct mfs_hf_shard *shard,
			    struct mfs_vfile **ret, struct mfs_error *err)
{
	struct mfs_safetensors_tensor *tensors;
	struct mfs_arena arena = {0};
	struct mfs_vfile *f = NULL;
	struct named *named;
	int rc = 0;

	tensors = mfs_arena_array(&arena, shard->count, sizeof(*tensors));
	named = mfs_arena_array(&arena, shard->count, sizeof(*named));
	if (!tensors || !named)
		rc = mfs_fail_nomem(err);
	for (uint32_t i = 0; i < shard->count && !rc; i++)
		if (describe(&arena, w->items[shard->first + i].target, &tensors[i], &named[i]))
			rc = mfs_fail_nomem(err);
	if (!rc)
		rc = mfs_safetensors_layout(tensors, shard->count, err);
	if (!rc)
		rc = mfs_vfile_new(&f, err);
	if (!rc) {
		qsort(named, shard->count, sizeof(*named), by_name);
		rc = fill_file(f, tensors, named, shard->count, err);
	}
	mfs_arena_release(&arena);
	if (rc) {
		mfs_vfile_free(f);
		return rc;
	}
	*ret = f;
	return 0;
}

const struct mfs_hf_container mfs_hf_safetensors = {"model", ".safetensors", safetensors_file};

/* ---- the index ---- */

void mfs_hf_shard_name(char name[MFS_HF_SHARD_NAME_SIZE], const struct mfs_hf_container *c,
		       uint32_t i, uint32_t count)
{
	if (count == 1)
		snprintf(name, MFS_HF_SHARD_NAME_SIZE, "%s%s", c->stem, c->suffix);
	else
		snprintf(name, MFS_HF_SHARD_NAME_SIZE, "%s-%05u-of-%05u%s", c->stem, i + 1, count,
			 c->suffix);
}

struct index_entry {
	const char *name;
	uint32_t shard;
};

static int by_index_name(const void *a, const void *b)
{
	const struct index_entry *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static void print_index(const struct mfs_hf_weights *w, const struct mfs_hf_container *c,
			const struct index_entry *entries, uint32_t shard_count,
			struct mfs_buf *out)
{
	char file[MFS_HF_SHARD_NAME_SIZE];

	mfs_buf_printf(out,
		       "{\n  \"metadata\": {\n    \"total_parameters\": %llu,\n"
		       "    \"total_size\": %llu\n  },\n  \"weight_map\": {\n",
		       (unsigned long long)w->parameters, (unsigned long long)w->bytes);
	for (uint32_t i = 0; i < w->count; i++) {
		mfs_hf_shard_name(file, c, entries[i].shard, shard_count);
		mfs_buf_adds(out, "    ");
		mfs_buf_add_json(out, entries[i].name);
		mfs_buf_printf(out, ": \"%s\"%s\n", file, i + 1 < w->count ? "," : "");
	}
	mfs_buf_adds(out, "  }\n}\n");
}

static int list_entries(const struct mfs_hf_weights *w, const struct mfs_hf_shard *shards,
			uint32_t count, struct mfs_arena *arena, struct index_entry **ret)
{
	struct index_entry *entries;
	uint32_t n = 0;

	entries = mfs_arena_array(arena, w->count, sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	for (uint32_t s = 0; s < count; s++) {
		for (uint32_t i = 0; i < shards[s].count; i++, n++) {
			entries[n].name = copy_name(arena, w->items[shards[s].first + i].target);
			entries[n].shard = s;
			if (!entries[n].name)
				return -ENOMEM;
		}
	}
	qsort(entries, n, sizeof(*entries), by_index_name);
	*ret = entries;
	return 0;
}

int mfs_hf_index_file(const struct mfs_hf_weights *w, const struct mfs_hf_container *c,
		      const struct mfs_hf_shard *shards, uint32_t count,
		      char ret_name[MFS_HF_SHARD_NAME_SIZE], struct mfs_vfile **ret,
		      struct mfs_error *err)
{
	struct mfs_arena arena = {0};
	struct index_entry *entries;
	struct mfs_buf text = {0};
	struct mfs_vfile *f = NULL;
	int rc = 0;

	if (list_entries(w, shards, count, &arena, &entries))
		rc = mfs_fail_nomem(err);
	if (!rc) {
		print_index(w, c, entries, count, &text);
		rc = text.failed ? mfs_fail_nomem(err) : mfs_vfile_new(&f, err);
	}
	if (!rc)
		rc = mfs_vfile_add_literal(f, text.data, text.len, err);
	mfs_arena_release(&arena);
	if (rc) {
		mfs_buf_release(&text);
		mfs_vfile_free(f);
		return rc;
	}
	snprintf(ret_name, MFS_HF_SHARD_NAME_SIZE, "%s%s.index.json", c->stem, c->suffix);
	*ret = f;
	return 0;
}
