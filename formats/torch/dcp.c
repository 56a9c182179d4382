#define _GNU_SOURCE
#include "formats/torch/dcp.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/grow.h"
#include "formats/base/search.h"
#include "formats/base/uthash.h"
#include "formats/torch/pickle.h"
#include "formats/torch/torch_file.h"

#define MIN_CHUNK     8 /* bytes of a stream, at the least: an object with two attributes */
#define MAX_FILE_NAME 1024
#define MAX_KEY	      512 /* of items, with its NUL */

struct file_entry {
	UT_hash_handle hh;
	uint32_t index;
	char name[];
};

struct parser {
	const struct mfs_pickle *doc;
	const char *name;
	struct mfs_dcp *dcp;
	struct file_entry *files;
	uint64_t budget; /* bytes of the stream that nothing has been made of yet */
	struct mfs_error *err;
};

static int bad(struct parser *p, const char *key, const char *what)
{
	return mfs_fail(p->err, -EINVAL, "%s: '%s': %s", p->name, key, what);
}

/* Keys and chunks are copied out of the stream. Each normally has bytes of its own there. Only a
 * stream that refers to the same few again and again can ask for more bytes than it has. */
static int spend(struct parser *p, uint64_t bytes)
{
	if (bytes <= p->budget) {
		p->budget -= bytes;
		return 0;
	}
	return mfs_fail(p->err, -EINVAL,
			"%s: it refers to the same names or chunks again and again", p->name);
}

/* ---- values ---- */

static bool natural(const struct parser *p, mfs_value v, uint64_t *ret)
{
	int64_t i;

	if (!mfs_value_int(p->doc, v, &i) || i < 0)
		return false;
	*ret = (uint64_t)i;
	return true;
}

/* The first ndim items of a tuple. */
static bool naturals(const struct parser *p, mfs_value dims, uint32_t ndim, uint64_t *ret)
{
	for (uint32_t i = 0; i < ndim; i++)
		if (!natural(p, mfs_value_at(p->doc, dims, i), &ret[i]))
			return false;
	return true;
}

/* A NUL inside would cut the name and let two keys look like one. */
static bool text(const struct parser *p, mfs_value v, const char **ret, size_t *ret_len)
{
	return mfs_value_str(p->doc, v, ret, ret_len) && !memchr(*ret, 0, *ret_len);
}

static bool item_key(const struct parser *p, mfs_value v, char *ret)
{
	const char *at;
	size_t len;

	if (!text(p, v, &at, &len) || len >= MAX_KEY)
		return false;
	memcpy(ret, at, len);
	ret[len] = '\0';
	return true;
}

/* ---- state_dict_metadata: names, shapes, chunks ---- */

static int read_dims(struct parser *p, const char *key, mfs_value size, uint32_t ndim,
		     const uint64_t **ret)
{
	mfs_value dims = mfs_torch_size(p->doc, size);
	uint64_t *array;

	if (mfs_value_count(p->doc, dims) != ndim)
		return bad(p, key, "a chunk has another number of axes than its tensor");
	array = mfs_arena_array(&p->dcp->arena, ndim, sizeof(*array));
	if (!array)
		return mfs_fail_nomem(p->err);
	if (!naturals(p, dims, ndim, array))
		return bad(p, key, "a size or offset is not a natural number");
	*ret = array;
	return 0;
}

static int compare_dims(const uint64_t *a, const uint64_t *b, unsigned ndim)
{
	for (unsigned i = 0; i < ndim; i++)
		if (a[i] != b[i])
			return a[i] < b[i] ? -1 : 1;
	return 0;
}

static int by_offset(const void *a, const void *b, void *ndim)
{
	const struct mfs_dcp_chunk *x = a, *y = b;

	return compare_dims(x->lo, y->lo, *(const unsigned *)ndim);
}

void mfs_dcp_sort_chunks(struct mfs_dcp_tensor *t)
{
	unsigned ndim = t->ndim;

	if (t->chunk_count)
		qsort_r(t->chunks, t->chunk_count, sizeof(*t->chunks), by_offset, &ndim);
}

static enum mfs_dtype read_dtype(struct parser *p, mfs_value tensor)
{
	mfs_value properties = mfs_value_attr(p->doc, tensor, "properties");
	mfs_value state = mfs_value_state(p->doc, properties);

	/* TensorProperties.__getstate__ gives a tuple; older pickles have the plain dict. */
	if (mfs_value_type(p->doc, state) == MFS_V_TUPLE)
		return mfs_torch_dtype(p->doc, mfs_value_at(p->doc, state, 0));
	return mfs_torch_dtype(p->doc, mfs_value_get(p->doc, state, "dtype"));
}

static int read_chunks(struct parser *p, mfs_value chunks, struct mfs_dcp_tensor *t)
{
	int rc;

	t->chunk_count = mfs_value_count(p->doc, chunks);
	rc = spend(p, (uint64_t)t->chunk_count * MIN_CHUNK);
	if (rc)
		return rc;
	t->chunks = mfs_arena_array(&p->dcp->arena, t->chunk_count, sizeof(*t->chunks));
	if (!t->chunks)
		return mfs_fail_nomem(p->err);
	for (uint32_t i = 0; i < t->chunk_count && !rc; i++) {
		mfs_value chunk = mfs_value_at(p->doc, chunks, i);
		struct mfs_dcp_chunk *c = &t->chunks[i];

		c->item.file = MFS_DCP_FILE_NONE;
		rc = read_dims(p, t->key, mfs_value_attr(p->doc, chunk, "offsets"), t->ndim,
			       &c->lo);
		if (!rc)
			rc = read_dims(p, t->key, mfs_value_attr(p->doc, chunk, "sizes"), t->ndim,
				       &c->size);
	}
	if (!rc)
		mfs_dcp_sort_chunks(t);
	return rc;
}

static int read_tensor(struct parser *p, mfs_value v, struct mfs_dcp_tensor *t)
{
	mfs_value size = mfs_value_attr(p->doc, v, "size");
	unsigned ndim = mfs_value_count(p->doc, mfs_torch_size(p->doc, size));
	int rc;

	if (ndim > MFS_MAX_DIMS)
		return bad(p, t->key, "more than 8 axes");
	t->ndim = (uint8_t)ndim;
	t->dtype = read_dtype(p, v);
	rc = read_dims(p, t->key, size, ndim, &t->shape);
	return rc ? rc : read_chunks(p, mfs_value_attr(p->doc, v, "chunks"), t);
}

static const char *copy_key(struct parser *p, mfs_value v)
{
	const char *key;
	size_t len;

	if (!text(p, v, &key, &len)) {
		mfs_fail(p->err, -EINVAL, "%s: a key is not text", p->name);
		return NULL;
	}
	if (spend(p, len))
		return NULL;
	key = mfs_arena_strndup(&p->dcp->arena, key, len);
	if (!key)
		mfs_fail_nomem(p->err);
	return key;
}

/* Tensors and bytes both begin with their key. */
static int by_key(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int read_keys(struct parser *p, mfs_value table)
{
	uint32_t pairs = mfs_value_pairs(p->doc, table);
	struct mfs_dcp *dcp = p->dcp;

	dcp->tensors = mfs_arena_array(&dcp->arena, pairs, sizeof(*dcp->tensors));
	dcp->bytes = mfs_arena_array(&dcp->arena, pairs, sizeof(*dcp->bytes));
	if (!dcp->tensors || !dcp->bytes)
		return mfs_fail_nomem(p->err);
	for (uint32_t i = 0; i < pairs; i++) {
		mfs_value v = mfs_value_item(p->doc, table, i);
		const char *key = copy_key(p, mfs_value_key(p->doc, table, i));
		int rc;

		if (!key)
			return p->err ? p->err->code : -EINVAL;
		if (mfs_value_is_object_of(p->doc, v, "BytesStorageMetadata")) {
			dcp->bytes[dcp->bytes_count++] =
				(struct mfs_dcp_bytes){.key = key, .item.file = MFS_DCP_FILE_NONE};
			continue;
		}
		if (!mfs_value_is_object_of(p->doc, v, "TensorStorageMetadata"))
			return bad(p, key, "neither a tensor nor bytes");
		dcp->tensors[dcp->tensor_count].key = key;
		rc = read_tensor(p, v, &dcp->tensors[dcp->tensor_count]);
		if (rc)
			return rc;
		dcp->tensor_count++;
	}
	qsort(dcp->tensors, dcp->tensor_count, sizeof(*dcp->tensors), by_key);
	qsort(dcp->bytes, dcp->bytes_count, sizeof(*dcp->bytes), by_key);
	return 0;
}

/* ---- mcore_data: what flattened tensors stand for ---- */

static struct mfs_dcp_tensor *find_tensor(const struct mfs_dcp *dcp, const char *key)
{
	struct mfs_dcp_tensor wanted = {.key = key};

	return bsearch(&wanted, dcp->tensors, dcp->tensor_count, sizeof(wanted), by_key);
}

static struct mfs_dcp_bytes *find_bytes(const struct mfs_dcp *dcp, const char *key)
{
	struct mfs_dcp_bytes wanted = {.key = key};

	return bsearch(&wanted, dcp->bytes, dcp->bytes_count, sizeof(wanted), by_key);
}

/* Core 0.10 has an entry for every tensor, which is empty where the tensor is not flattened. Others
 * without a good shape are passed over, too: such a tensor then has the wrong axes. */
static int read_original(struct parser *p, mfs_value key, mfs_value entry)
{
	mfs_value shape = mfs_value_get(p->doc, entry, "nd_reformulated_orig_global_shape");
	mfs_value dims = mfs_torch_size(p->doc, shape);
	uint64_t lengths[MFS_MAX_DIMS];
	struct mfs_dcp_tensor *t;
	char name[MAX_KEY];

	if (!shape || !item_key(p, key, name))
		return 0;
	t = find_tensor(p->dcp, name);
	if (!t || !t->ndim || mfs_value_count(p->doc, dims) != t->ndim - 1u ||
	    !naturals(p, dims, t->ndim - 1u, lengths))
		return 0;
	return read_dims(p, t->key, shape, t->ndim - 1u, &t->original);
}

static int read_originals(struct parser *p, mfs_value table)
{
	const uint32_t pairs = mfs_value_pairs(p->doc, table);
	int rc = 0;

	for (uint32_t i = 0; i < pairs && !rc; i++)
		rc = read_original(p, mfs_value_key(p->doc, table, i),
				   mfs_value_item(p->doc, table, i));
	return rc;
}

/* ---- storage_data: where items lie ---- */

static int add_file(struct parser *p, const char *name, size_t len, uint32_t *ret)
{
	struct mfs_dcp *dcp = p->dcp;
	struct file_entry *e;

	if (mfs_grow(&dcp->files, dcp->file_count))
		return mfs_fail_nomem(p->err);
	e = mfs_arena_alloc(&dcp->arena, sizeof(*e) + len + 1);
	if (!e)
		return mfs_fail_nomem(p->err);
	memcpy(e->name, name, len);
	e->index = dcp->file_count;
	HASH_ADD(hh, p->files, name, len, e);
	if (!e->hh.tbl)
		return mfs_fail_nomem(p->err);
	dcp->files[dcp->file_count++] = e->name;
	*ret = e->index;
	return 0;
}

static int find_file(struct parser *p, const char *key, mfs_value path, uint32_t *ret)
{
	struct file_entry *e;
	const char *name;
	size_t len;

	if (!text(p, path, &name, &len) || !len || len > MAX_FILE_NAME)
		return bad(p, key, "its file has no name");
	HASH_FIND(hh, p->files, name, len, e);
	if (!e)
		return add_file(p, name, len, ret);
	*ret = e->index;
	return 0;
}

static int read_item(struct parser *p, const char *key, mfs_value info, struct mfs_dcp_item *ret)
{
	mfs_value transforms = mfs_value_attr(p->doc, info, "transform_descriptors");

	if (mfs_value_count(p->doc, transforms))
		return mfs_fail(p->err, -ENOTSUP,
				"%s: '%s': its bytes are transformed (compressed?)", p->name, key);
	if (!natural(p, mfs_value_attr(p->doc, info, "offset"), &ret->offset) ||
	    !natural(p, mfs_value_attr(p->doc, info, "length"), &ret->length))
		return bad(p, key, "its place in a file is not a natural number");
	return find_file(p, key, mfs_value_attr(p->doc, info, "relative_path"), &ret->file);
}

static struct mfs_dcp_chunk *find_chunk(const struct mfs_dcp_tensor *t, const uint64_t *lo)
{
	struct mfs_dcp_chunk key = {.lo = lo};
	unsigned ndim = t->ndim;
	const size_t at =
		mfs_count_while(i, t->chunk_count, by_offset(&t->chunks[i], &key, &ndim) < 0);

	return at < t->chunk_count && !by_offset(&t->chunks[at], &key, &ndim) ? &t->chunks[at]
									      : NULL;
}

/* Equality of a MetadataIndex uses (fqn, offset) alone: its index is a hint that may be wrong. */
static int read_chunk_place(struct parser *p, const char *key, mfs_value index, mfs_value info)
{
	const struct mfs_dcp_tensor *t = find_tensor(p->dcp, key);
	mfs_value offset = mfs_torch_size(p->doc, mfs_value_attr(p->doc, index, "offset"));
	struct mfs_dcp_chunk *chunk;
	uint64_t lo[MFS_MAX_DIMS];

	if (!t || mfs_value_count(p->doc, offset) != t->ndim)
		return bad(p, key, "an item that belongs to no tensor");
	if (!naturals(p, offset, t->ndim, lo))
		return bad(p, key, "an item's offset is not a natural number");
	chunk = find_chunk(t, lo);
	if (!chunk)
		return bad(p, key, "an item that belongs to no chunk");
	return read_item(p, key, info, &chunk->item);
}

static int read_place(struct parser *p, mfs_value index, mfs_value info)
{
	struct mfs_dcp_bytes *bytes;
	char key[MAX_KEY];

	if (!item_key(p, mfs_value_attr(p->doc, index, "fqn"), key))
		return mfs_fail(p->err, -EINVAL, "%s: an item without a name", p->name);
	bytes = find_bytes(p->dcp, key);
	return bytes ? read_item(p, key, info, &bytes->item)
		     : read_chunk_place(p, key, index, info);
}

static int read_places(struct parser *p, mfs_value table)
{
	uint32_t pairs = mfs_value_pairs(p->doc, table);
	int rc = 0;

	for (uint32_t i = 0; i < pairs && !rc; i++)
		rc = read_place(p, mfs_value_key(p->doc, table, i),
				mfs_value_item(p->doc, table, i));
	return rc;
}

/* ---- the whole ---- */

/* Skipping all_local_plans also skips the attributes that follow it in the same batch. */
static bool lost_something(const struct mfs_pickle *doc)
{
	mfs_value state = mfs_value_state(doc, mfs_pickle_root(doc));

	for (uint32_t i = 0; i < mfs_value_pairs(doc, state); i++)
		if (mfs_value_type(doc, mfs_value_key(doc, state, i)) == MFS_V_DISCARDED)
			return true;
	return !mfs_value_has(doc, state, "state_dict_metadata") ||
	       !mfs_value_has(doc, state, "storage_data");
}

static int parse_pickle(const void *bytes, size_t len, const char *name, struct mfs_pickle **ret,
			struct mfs_error *err)
{
	const struct mfs_pickle_options skip_plans = {.discard_key = "all_local_plans"};
	struct mfs_pickle *doc;
	int rc = mfs_pickle_parse(bytes, len, name, &skip_plans, &doc, err);

	if (!rc && lost_something(doc)) {
		mfs_pickle_free(doc);
		rc = mfs_pickle_parse(bytes, len, name, NULL, &doc, err);
	}
	if (!rc)
		*ret = doc;
	return rc;
}

int mfs_dcp_parse(const void *bytes, size_t len, const char *name, struct mfs_dcp *ret,
		  struct mfs_error *err)
{
	struct mfs_dcp dcp = {0};
	struct parser p = {.name = name, .dcp = &dcp, .err = err};
	struct mfs_pickle *doc;
	mfs_value root;
	int rc;

	rc = parse_pickle(bytes, len, name, &doc, err);
	if (rc)
		return rc;
	p.doc = doc;
	p.budget = mfs_pickle_length(doc);
	root = mfs_pickle_root(doc);
	if (mfs_value_is_none(doc, mfs_value_attr(doc, root, "state_dict_metadata")) ||
	    mfs_value_is_none(doc, mfs_value_attr(doc, root, "storage_data")))
		rc = mfs_fail(err, -EINVAL,
			      "%s: not the metadata of a torch distributed checkpoint", name);
	if (!rc)
		rc = read_keys(&p, mfs_value_attr(doc, root, "state_dict_metadata"));
	if (!rc)
		rc = read_originals(&p, mfs_value_attr(doc, root, "mcore_data"));
	if (!rc)
		rc = read_places(&p, mfs_value_attr(doc, root, "storage_data"));
	HASH_CLEAR(hh, p.files); /* the entries lie in the arena */
	mfs_pickle_free(doc);
	if (rc) {
		mfs_dcp_release(&dcp);
		return rc;
	}
	*ret = dcp;
	return 0;
}

void mfs_dcp_release(struct mfs_dcp *dcp)
{
	mfs_arena_release(&dcp->arena);
	free(dcp->files);
	*dcp = (struct mfs_dcp){0};
}

int mfs_dcp_check(const struct mfs_dcp_tensor *t, const char *name, struct mfs_error *err)
{
	uint64_t volume, sum = 0, part;

	if (!t->dtype)
		return mfs_fail(err, -ENOTSUP, "%s: '%s': unsupported element type", name, t->key);
	if (!mfs_shape_count(t->shape, t->ndim, &volume))
		return mfs_fail(err, -EINVAL, "%s: '%s': its size overflows", name, t->key);
	for (uint32_t i = 0; i < t->chunk_count; i++) {
		const struct mfs_dcp_chunk *c = &t->chunks[i];

		if (c->item.file == MFS_DCP_FILE_NONE)
			return mfs_fail(err, -EINVAL, "%s: '%s': a chunk is in no file", name,
					t->key);
		for (unsigned d = 0; d < t->ndim; d++)
			if (!mfs_range_ok(c->lo[d], c->size[d], t->shape[d]))
				return mfs_fail(err, -EINVAL, "%s: '%s': a chunk leaves the tensor",
						name, t->key);
		if (!mfs_shape_count(c->size, t->ndim, &part) || mfs_add_overflows(sum, part, &sum))
			return mfs_fail(err, -EINVAL, "%s: '%s': a chunk's size overflows", name,
					t->key);
	}
	if (sum != volume)
		return mfs_fail(err, -EINVAL,
				"%s: '%s': expected chunks of %llu elements, found %llu", name,
				t->key, (unsigned long long)volume, (unsigned long long)sum);
	return 0;
}

const struct mfs_dcp_tensor *mfs_dcp_tensor(const struct mfs_dcp *dcp, const char *key)
{
	return find_tensor(dcp, key);
}

const struct mfs_dcp_bytes *mfs_dcp_bytes(const struct mfs_dcp *dcp, const char *key)
{
	return find_bytes(dcp, key);
}
