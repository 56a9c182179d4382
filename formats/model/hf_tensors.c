#include "formats/model/hf_tensors.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/str.h"
#include "formats/base/uthash.h"
#include "formats/ckpt/ckpt_build.h"
#include "formats/ckpt/language_part.h"
#include "formats/hf/hf_json.h"
#include "formats/hf/safetensors.h"
#include "formats/torch/torch_file.h"

struct mfs_hf_entry {
	struct mfs_hf_tensor tensor;
	UT_hash_handle hh; /* by tensor.name */
};

struct reader {
	struct mfs_ckpt *ckpt;
	struct mfs_hf_tensors *set;
	json_t *map;		   /* tensor to file; NULL: one file has all */
	const char *index;	   /* the map's file */
	struct mfs_prefixes *seen; /* or NULL */
	struct mfs_error *err;
};

/* ---- the set ---- */

struct mfs_hf_tensor *mfs_hf_tensors_find(const struct mfs_hf_tensors *set, const char *name)
{
	struct mfs_hf_entry *e;

	HASH_FIND(hh, set->entries, name, strlen(name), e);
	return e ? &e->tensor : NULL;
}

struct mfs_hf_tensor *mfs_hf_tensors_next(const struct mfs_hf_tensors *set,
					  const struct mfs_hf_tensor *t)
{
	const struct mfs_hf_entry *e = (const struct mfs_hf_entry *)t;
	struct mfs_hf_entry *next = e ? e->hh.next : set->entries;

	return next ? &next->tensor : NULL;
}

void mfs_hf_tensors_release(struct mfs_hf_tensors *set)
{
	HASH_CLEAR(hh, set->entries); /* the entries lie in the arena */
	mfs_arena_release(&set->arena);
	*set = (struct mfs_hf_tensors){0};
}

int mfs_hf_tensors_add(const struct mfs_ckpt *ckpt, struct mfs_hf_tensors *set,
		       const struct mfs_hf_tensor *t, struct mfs_error *err)
{
	const struct mfs_hf_tensor *there = mfs_hf_tensors_find(set, t->name);
	struct mfs_hf_entry *e;

	if (there)
		return mfs_fail(err, -EINVAL, "%s: tensor '%s' is in %s and in %s", ckpt->dir,
				t->name, mfs_fileset_name(ckpt->files, there->file),
				mfs_fileset_name(ckpt->files, t->file));
	e = mfs_arena_alloc(&set->arena, sizeof(*e));
	if (!e)
		return mfs_fail_nomem(err);
	e->tensor = *t;
	e->tensor.name = mfs_arena_strndup(&set->arena, t->name, strlen(t->name));
	if (!e->tensor.name)
		return mfs_fail_nomem(err);
	HASH_ADD_KEYPTR(hh, set->entries, e->tensor.name, strlen(e->tensor.name), e);
	return e->hh.tbl ? 0 : mfs_fail_nomem(err);
}

static const char *file_name(const struct reader *r, uint32_t file)
{
	return mfs_fileset_name(r->ckpt->files, file);
}

static int add(struct reader *r, const struct mfs_hf_tensor *t)
{
	return mfs_hf_tensors_add(r->ckpt, r->set, t, r->err);
}

/* False if the index names another file for the tensor: this one is a copy. */
static bool is_wanted(const struct reader *r, const char *name, uint32_t file)
{
	const char *other = json_string_value(json_object_get(r->map, name));

	return !other || !strcmp(other, file_name(r, file));
}

static const char *copy_name(struct reader *r, const char *name, size_t len)
{
	return mfs_arena_strndup(&r->set->arena, name, len);
}

/* Gives a tensor's name the prefix that it has in the set. *name: NULL if it is left out. text
 * holds another name. */
static int rename_tensor(struct reader *r, const char **name, char text[MFS_CKPT_NAME_SIZE])
{
	const uint64_t used = r->seen ? r->seen->used : 0;
	const struct mfs_prefix *p = r->seen ? mfs_prefixes_see(r->seen, *name) : NULL;
	const struct mfs_prefix *a, *b;

	if (!r->seen)
		return 0;
	if (!p)
		return mfs_fail(r->err, -ENOTSUP,
				"%s: tensor '%.160s' is of none of the modules that the file of %s "
				"names",
				r->ckpt->dir, *name, r->seen->owner);
	if (r->seen->used != used && mfs_prefixes_clash(r->seen, &a, &b))
		return mfs_fail(r->err, -EINVAL, MFS_PART_CLASH, r->ckpt->dir, a->from, b->from,
				r->seen->owner);
	if (p->to && mfs_prefix_replace(p, *name, text, MFS_CKPT_NAME_SIZE) >= MFS_CKPT_NAME_SIZE)
		return mfs_fail(r->err, -ENOTSUP, "%s: the name '%.60s...' is too long",
				r->ckpt->dir, *name);
	*name = p->to ? text : NULL;
	return 0;
}

/* ---- safetensors ---- */

static int add_plain(struct reader *r, uint32_t file, const struct mfs_safetensors_tensor *from,
		     uint64_t data)
{
	char text[MFS_CKPT_NAME_SIZE];
	const char *name = from->name;
	struct mfs_hf_tensor t = {.dtype = from->dtype, .ndim = from->ndim, .file = file};
	struct mfs_storage s = {.file = file,
				.dtype = from->dtype,
				.at = data + from->begin,
				.length = from->end - from->begin};
	int rc;

	rc = rename_tensor(r, &name, text);
	if (rc || !name)
		return rc;
	s.data = s.at + 1;
	memcpy(t.shape, from->shape, sizeof(t.shape));
	mfs_ckpt_contiguous(t.shape, t.ndim, t.stride);
	t.name = copy_name(r, name, strlen(name));
	if (!t.name)
		return mfs_fail_nomem(r->err);
	rc = mfs_ckpt_add_storage(r->ckpt, &s, &t.storage, r->err);
	return rc ? rc : add(r, &t);
}

static int read_safetensors(struct reader *r, uint32_t file)
{
	struct mfs_source src = mfs_source_file(r->ckpt->files, file);
	struct mfs_safetensors st;
	int rc = mfs_safetensors_open(&src, &st, r->err);

	if (rc) {
		mfs_fail_in(r->err, "%s", r->ckpt->dir);
		return rc;
	}
	for (uint32_t i = 0; i < st.count && !rc; i++)
		if (is_wanted(r, st.tensors[i].name, file))
			rc = add_plain(r, file, &st.tensors[i], st.data);
	mfs_safetensors_release(&st);
	return rc;
}

/* ---- torch.save ---- */

/* An archive, and the checkpoint's number of each of its records, plus 1; 0: not added yet. */
struct archive {
	struct mfs_torch_file file;
	uint32_t *storages;
	uint32_t index;
};

static int storage_of(struct reader *r, struct archive *a, const struct mfs_torch_tensor *t,
		      uint32_t *ret)
{
	const struct mfs_zip_entry *e = t->record;
	uint32_t *number = &a->storages[e - a->file.zip.entries];
	int rc;

	if (!*number) {
		rc = mfs_ckpt_add_record(r->ckpt, a->index, 0, e, t->dtype, number, r->err);
		if (rc)
			return rc;
		++*number;
	}
	*ret = *number - 1;
	return 0;
}

static int add_viewed(struct reader *r, struct archive *a, const char *name, mfs_value v)
{
	struct mfs_hf_tensor t = {.file = a->index};
	struct mfs_torch_tensor view;
	char text[MFS_CKPT_NAME_SIZE];
	int rc = rename_tensor(r, &name, text);

	if (rc || !name)
		return rc;
	t.name = name; /* add() copies it */
	rc = mfs_torch_tensor(&a->file, v, &view, r->err);
	if (rc) {
		mfs_fail_in(r->err, "%s: tensor '%s'", r->ckpt->dir, name);
		return rc;
	}
	t.dtype = view.dtype;
	t.ndim = view.ndim;
	t.origin = view.offset;
	memcpy(t.shape, view.shape, sizeof(t.shape));
	memcpy(t.stride, view.stride, sizeof(t.stride));
	rc = storage_of(r, a, &view, &t.storage);
	return rc ? rc : add(r, &t);
}

static int read_dict(struct reader *r, struct archive *a)
{
	const struct mfs_pickle *doc = a->file.doc;
	const mfs_value root = mfs_pickle_root(doc);
	uint64_t budget = mfs_pickle_length(doc);
	int rc = 0;

	if (!mfs_value_pairs(doc, root))
		return mfs_fail(r->err, -EINVAL, "%s/%s: expected a dict of tensors", r->ckpt->dir,
				file_name(r, a->index));
	for (uint32_t i = 0; i < mfs_value_pairs(doc, root) && !rc; i++) {
		const char *text, *name;
		size_t len;

		if (!mfs_value_str(doc, mfs_value_key(doc, root, i), &text, &len) ||
		    memchr(text, 0, len) || len > budget)
			return mfs_fail(r->err, -EINVAL, "%s/%s: a tensor's name is not text",
					r->ckpt->dir, file_name(r, a->index));
		budget -= len; /* each has taken its own bytes of the stream */
		name = copy_name(r, text, len);
		if (!name)
			return mfs_fail_nomem(r->err);
		if (is_wanted(r, name, a->index))
			rc = add_viewed(r, a, name, mfs_value_item(doc, root, i));
	}
	return rc;
}

static int read_torch(struct reader *r, uint32_t file)
{
	struct mfs_source src = mfs_source_file(r->ckpt->files, file);
	struct archive a = {.index = file};
	int rc = mfs_torch_file_open(&src, &a.file, r->err);

	if (rc) {
		mfs_fail_in(r->err, "%s", r->ckpt->dir);
		return rc;
	}
	a.storages = calloc(a.file.zip.count, sizeof(*a.storages));
	rc = a.storages ? read_dict(r, &a) : mfs_fail_nomem(r->err);
	free(a.storages);
	mfs_torch_file_release(&a.file);
	return rc;
}

/* ---- the index ---- */

/* "./x" and "a//x" would be second names of a file. */
static bool is_detour(const char *name)
{
	for (const char *p = name; p; p = strchr(p, '/')) {
		p += *p == '/';
		if (*p == '/' || !strncmp(p, "./", 2))
			return true;
	}
	return false;
}

static int check_map(const json_t *map, const char *name, struct mfs_error *err)
{
	const char *tensor;
	json_t *file;

	if (!json_is_object(map) || !json_object_size(map))
		return mfs_fail(err, -EINVAL, "%s: 'weight_map' is missing", name);
	json_object_foreach((json_t *)map, tensor, file)
	{
		if (!json_is_string(file))
			return mfs_fail(err, -EINVAL,
					"%s: weight_map: the file of tensor '%s' is not text", name,
					tensor);
		if (is_detour(json_string_value(file)))
			return mfs_fail(err, -EINVAL,
					"%s: weight_map: the file of tensor '%s' is named '%.100s'",
					name, tensor, json_string_value(file));
	}
	return 0;
}

int mfs_hf_index_parse(const char *bytes, size_t len, const char *name, json_t **ret_map,
		       struct mfs_error *err)
{
	json_t *root, *map;
	int rc = mfs_json_load(bytes, len, MFS_HF_INDEX_MAX, 0, name, &root, err);

	if (rc)
		return rc;
	map = json_object_get(root, "weight_map");
	rc = check_map(map, name, err);
	if (!rc)
		*ret_map = json_incref(map);
	json_decref(root);
	return rc;
}

static int load_index(struct reader *r)
{
	char *bytes, path[4096];
	size_t len;
	int rc = mfs_hf_slurp(r->ckpt->dir, r->index, MFS_HF_INDEX_MAX, &bytes, &len, r->err);

	if (rc)
		return rc;
	snprintf(path, sizeof(path), "%s/%s", r->ckpt->dir, r->index);
	rc = mfs_hf_index_parse(bytes, len, path, &r->map, r->err);
	free(bytes);
	return rc;
}

/* ---- files ---- */

static int add_file(struct reader *r, const char *name, uint32_t *ret)
{
	int rc = mfs_fileset_add(r->ckpt->files, name, ret, r->err);

	if (rc == -ENOENT)
		return mfs_fail(r->err, -ENODATA, "%s/%s is missing%s%s", r->ckpt->dir, name,
				r->map ? "; it is listed in " : "", r->map ? r->index : "");
	return rc;
}

static int read_file(struct reader *r, const char *name)
{
	uint32_t file;
	int rc = add_file(r, name, &file);

	if (rc)
		return rc;
	return mfs_str_ends(name, ".safetensors") ? read_safetensors(r, file) : read_torch(r, file);
}

/* Each shard once, in the order in which the index first names them. */
static int read_shards(struct reader *r)
{
	json_t *seen = json_object(), *file;
	const char *tensor;
	int rc = seen ? 0 : mfs_fail_nomem(r->err);

	json_object_foreach(r->map, tensor, file)
	{
		const char *name = json_string_value(file);

		if (rc || json_object_get(seen, name))
			continue;
		rc = json_object_set_new(seen, name, json_true()) ? mfs_fail_nomem(r->err)
								  : read_file(r, name);
	}
	json_decref(seen);
	return rc;
}

/* A tensor that the set has, under its name there, or that is left out. */
static bool is_read(const struct reader *r, const char *tensor)
{
	const struct mfs_prefix *p = r->seen ? mfs_prefix_find(r->seen->table, tensor) : NULL;
	char text[MFS_CKPT_NAME_SIZE];

	if (!p)
		return mfs_hf_tensors_find(r->set, tensor);
	if (!p->to)
		return true;
	mfs_prefix_replace(p, tensor, text, sizeof(text));
	return mfs_hf_tensors_find(r->set, text);
}

static int check_index(struct reader *r)
{
	const char *tensor;
	json_t *file;

	json_object_foreach(r->map, tensor, file)
	{
		if (!is_read(r, tensor))
			return mfs_fail(r->err, -ENODATA,
					"%s/%s: tensor '%s' is missing; %s lists it", r->ckpt->dir,
					json_string_value(file), tensor, r->index);
	}
	return 0;
}

static int read_index(struct reader *r, const char *name)
{
	uint32_t file;
	int rc = add_file(r, name, &file); /* its change changes the checkpoint */

	r->index = name;
	if (!rc)
		rc = load_index(r);
	if (!rc)
		rc = read_shards(r);
	if (!rc)
		rc = check_index(r);
	json_decref(r->map);
	return rc;
}

const char *mfs_hf_weights_name(const char *dir, bool *ret_index)
{
	static const char *const names[] = {"model.safetensors", "model.safetensors.index.json",
					    "pytorch_model.bin", "pytorch_model.bin.index.json"};
	char path[4096];
	struct stat st;

	for (size_t i = 0; i < 4; i++)
		if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, names[i]) < sizeof(path) &&
		    !stat(path, &st) && S_ISREG(st.st_mode)) {
			*ret_index = i % 2;
			return names[i];
		}
	return NULL;
}

int mfs_hf_tensors_read(struct mfs_ckpt *ckpt, struct mfs_prefixes *seen,
			struct mfs_hf_tensors *ret, struct mfs_error *err)
{
	struct reader r = {.ckpt = ckpt, .set = ret, .seen = seen, .err = err};
	bool index;
	const char *name = mfs_hf_weights_name(ckpt->dir, &index);

	if (!name)
		return mfs_fail(err, -ENODATA,
				"%s: neither model.safetensors nor pytorch_model.bin nor an index "
				"of either: no weights",
				ckpt->dir);
	return index ? read_index(&r, name) : read_file(&r, name);
}
