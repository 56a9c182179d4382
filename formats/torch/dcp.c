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

/* Keys and chunks are copied out of the stream, where each has taken its own bytes; only one that refers to the same
 * few again and again can ask for more than there are. */
static int spend(struct parser *p, uint64_t bytes)
{
	if (bytes <= p->budget) {
		p->budget -= bytes;
		return 0;
	}
	return mfs_fail(p->err, -EINVAL,
			"%s: it refers to the same names or chunks again and again", p->name);
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
	for (uint32_t i = 0; i < ndim; i++) {
		int64_t v;

		if (!mfs_value_int(p->doc, mfs_value_at(p->doc, dims, i), &v) || v < 0)
			return bad(p, key, "a size or offset is not a natural number");
		array[i] = (uint64_t)v;
	}
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

static enum mfs_dtype read_dtype(struct parser *p, mfs_value tensor)
{
	mfs_value properties = mfs_value_attr(p->doc, tensor, "properties");
	mfs_value state = mfs_value_state(p->doc, properties);

	/* TensorProperties.__getstate__ gives a tuple; older pickles have the plain dict. */
	if (mfs_value_type(p->doc, state) == MFS_V_TUPLE)
		return mfs_torch_dtype(p->doc, mfs_value_at(p->doc, state, 0));
	return mfs_torch_dtype(p->doc, mfs_value_get(p->doc, state, "dtype"));
}

static int read_tensor(struct parser *p, mfs_value v, struct mfs_dcp_tensor *t)
{
	mfs_value size = mfs_value_attr(p->doc, v, "size");
	mfs_value chunks = mfs_value_attr(p->doc, v, "chunks");
	unsigned ndim = mfs_value_count(p->doc, mfs_torch_size(p->doc, size));
	int rc;

	if (ndim > MFS_MAX_DIMS)
		return bad(p, t->key, "more than 8 axes");
	t->ndim = (uint8_t)ndim;
	t->dtype = read_dtype(p, v);
	rc = read_dims(p, t->key, size, ndim, &t->shape);
	if (rc)
		return rc;
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

		c->item.file = MFS_DCP_NO_FILE;
		rc = read_dims(p, t->key, mfs_value_attr(p->doc, chunk, "offsets"), ndim, &c->lo);
		if (!rc)
			rc = read_dims(p, t->key, mfs_value_attr(p->doc, chunk, "sizes"), ndim,
				       &c->size);
	}
	if (!rc)
		qsort_r(t->chunks, t->chunk_count, sizeof(*t->chunks), by_offset, &ndim);
	return rc;
}

static const char *copy_key(struct parser *p, mfs_value v)
{
	const char *text;
	size_t len;

	/* A NUL inside would cut the name and let two keys look like one. */
	if (!mfs_value_str(p->doc, v, &text, &len) || memchr(text, 0, len)) {
		mfs_fail(p->err, -EINVAL, "%s: a key is not text", p->name);
		return NULL;
	}
	if (spend(p, len))
		return NULL;
	text = mfs_arena_strndup(&p->dcp->arena, text, len);
	if (!text)
		mfs_fail_nomem(p->err);
	return text;
}

static int tensor_by_key(const void *a, const void *b)
{
	const struct mfs_dcp_tensor *x = a, *y = b;

	return strcmp(x->key, y->key);
}

static int bytes_by_key(const void *a, const void *b)
{
	const struct mfs_dcp_bytes *x = a, *y = b;

	return strcmp(x->key, y->key);
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
				(struct mfs_dcp_bytes){.key = key, .item.file = MFS_DCP_NO_FILE};
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
	qsort(dcp->tensors, dcp->tensor_count, sizeof(*dcp->tensors), tensor_by_key);
	qsort(dcp->bytes, dcp->bytes_count, sizeof(*dcp->bytes), bytes_by_key);
	return 0;
}

/* ---- mcore_data: what flattened tensors stand for ---- */

static struct mfs_dcp_tensor *find_tensor(struct parser *p, mfs_value key)
{
	struct mfs_dcp_tensor wanted;
	char name[512];
	const char *text;
	size_t len;

	if (!mfs_value_str(p->doc, key, &text, &len) || len >= sizeof(name) || memchr(text, 0, len))
		return NULL;
	memcpy(name, text, len);
	name[len] = '\0';
	wanted.key = name;
	return bsearch(&wanted, p->dcp->tensors, p->dcp->tensor_count, sizeof(wanted),
		       tensor_by_key);
}

/* A shape of that many axes. What is none is not judged here either: the tensor then has the wrong axes. */
static bool is_shape(const struct parser *p, mfs_value shape, uint32_t ndim)
{
	mfs_value dims = mfs_torch_size(p->doc, shape);
	int64_t n;

	if (mfs_value_count(p->doc, dims) != ndim)
		return false;
	for (uint32_t i = 0; i < ndim; i++)
		if (!mfs_value_int(p->doc, mfs_value_at(p->doc, dims, i), &n) || n < 0)
			return false;
	return true;
}

static int read_originals(struct parser *p, mfs_value table)
{
	const uint32_t pairs = mfs_value_pairs(p->doc, table);
	int rc = 0;

	for (uint32_t i = 0; i < pairs && !rc; i++) {
		struct mfs_dcp_tensor *t = find_tensor(p, mfs_value_key(p->doc, table, i));
		mfs_value entry = mfs_value_item(p->doc, table, i);
		mfs_value shape =
			t ? mfs_value_get(p->doc, entry, "nd_reformulated_orig_global_shape") : 0;

		if (t && t->ndim && is_shape(p, shape, t->ndim - 1u))
			rc = read_dims(p, t->key, shape, t->ndim - 1u, &t->original);
	}
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

	if (!mfs_value_str(p->doc, path, &name, &len) || !len || len > MAX_FILE_NAME ||
	    memchr(name, 0, len))
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
	int64_t offset, length;

	if (mfs_value_count(p->doc, transforms))
		return mfs_fail(p->err, -ENOTSUP,
				"%s: '%s': its bytes are transformed (compressed?)", p->name, key);
	if (!mfs_value_int(p->doc, mfs_value_attr(p->doc, info, "offset"), &offset) ||
	    !mfs_value_int(p->doc, mfs_value_attr(p->doc, info, "length"), &length) || offset < 0 ||
	    length < 0)
		return bad(p, key, "its place in a file is not a natural number");
	ret->offset = (uint64_t)offset;
	ret->length = (uint64_t)length;
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
static int read_place(struct parser *p, mfs_value index, mfs_value info)
{
	mfs_value offset = mfs_torch_size(p->doc, mfs_value_attr(p->doc, index, "offset"));
	struct mfs_dcp_bytes *bytes, bytes_key;
	struct mfs_dcp_tensor *tensor, tensor_key;
	struct mfs_dcp_chunk *chunk;
	uint64_t lo[MFS_MAX_DIMS];
	char name[512];
	const char *text;
	size_t len;

	if (!mfs_value_str(p->doc, mfs_value_attr(p->doc, index, "fqn"), &text, &len) ||
	    len >= sizeof(name) || memchr(text, 0, len))
		return mfs_fail(p->err, -EINVAL, "%s: an item without a name", p->name);
	memcpy(name, text, len);
	name[len] = '\0';
	tensor_key.key = bytes_key.key = name;
	bytes = bsearch(&bytes_key, p->dcp->bytes, p->dcp->bytes_count, sizeof(*bytes),
			bytes_by_key);
	if (bytes)
		return read_item(p, name, info, &bytes->item);
	tensor = bsearch(&tensor_key, p->dcp->tensors, p->dcp->tensor_count, sizeof(*tensor),
			 tensor_by_key);
	if (!tensor || mfs_value_count(p->doc, offset) != tensor->ndim)
		return bad(p, name, "an item that belongs to no tensor");
	for (unsigned i = 0; i < tensor->ndim; i++) {
		int64_t v;

		if (!mfs_value_int(p->doc, mfs_value_at(p->doc, offset, i), &v) || v < 0)
			return bad(p, name, "an item's offset is not a natural number");
		lo[i] = (uint64_t)v;
	}
	chunk = find_chunk(tensor, lo);
	if (!chunk)
		return bad(p, name, "an item that belongs to no chunk");
	return read_item(p, name, info, &chunk->item);
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

/* Attributes behind all_local_plans in the same batch were read past with it. */
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

		if (c->item.file == MFS_DCP_NO_FILE)
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
	struct mfs_dcp_tensor wanted = {.key = key};

	return bsearch(&wanted, dcp->tensors, dcp->tensor_count, sizeof(wanted), tensor_by_key);
}

const struct mfs_dcp_bytes *mfs_dcp_bytes(const struct mfs_dcp *dcp, const char *key)
{
	struct mfs_dcp_bytes wanted = {.key = key};

	return bsearch(&wanted, dcp->bytes, dcp->bytes_count, sizeof(wanted), bytes_by_key);
}
