#include "formats/torch/torch_stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/tensor.h"

#define PREFIX	     "stream/"
#define PROTOCOL     1001
#define FIRST_WINDOW (64u << 10)
#define MAX_PICKLES  (256ull << 20) /* a rank of 1000 layers has some MB */

static const uint8_t magic[] = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c,
				0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};

/* The pickles in the order of the file. */
enum { MAGIC, VERSION, SYSTEM, OBJECT, KEYS, PICKLES };

struct stream {
	const struct mfs_source *src;
	void *bytes; /* of the pickles, and perhaps more */
	struct mfs_pickle *doc[PICKLES];
	uint64_t at[PICKLES]; /* where each begins */
	uint64_t end;	      /* of the last one */
	struct mfs_error *err;
};

/* A storage as the object names it. */
struct named {
	const char *key; /* not NUL-terminated */
	size_t key_len;
	uint64_t elements;
	enum mfs_dtype dtype;
};

bool mfs_torch_is_stream(const struct mfs_source *src)
{
	uint8_t head[sizeof(magic)];

	return src->size >= sizeof(head) && !mfs_source_read(src, 0, head, sizeof(head), NULL) &&
	       !memcmp(head, magic, sizeof(head));
}

static void release(struct stream *s)
{
	for (int i = 0; i < PICKLES; i++) {
		mfs_pickle_free(s->doc[i]);
		s->doc[i] = NULL;
	}
	free(s->bytes);
	s->bytes = NULL;
}

/* ---- the pickles ---- */

static int parse_window(struct stream *s, uint64_t len)
{
	uint64_t at = 0;
	int rc = mfs_source_slurp(s->src, 0, len, &s->bytes, s->err);

	for (int i = 0; i < PICKLES && !rc; i++) {
		s->at[i] = at;
		rc = mfs_pickle_parse((const uint8_t *)s->bytes + at, len - at, s->src->name, NULL,
				      &s->doc[i], s->err);
		if (!rc)
			at += mfs_pickle_length(s->doc[i]);
	}
	s->end = at;
	return rc;
}

/* Where the pickles end stands nowhere. They are read from a window, which grows until they fit. */
static int parse(struct stream *s)
{
	const uint64_t most = mfs_min_u64(s->src->size, MAX_PICKLES);
	uint64_t len = mfs_min_u64(FIRST_WINDOW, most);
	int rc;

	while ((rc = parse_window(s, len)) == -EINVAL && len < most) {
		release(s);
		len = mfs_min_u64(4 * len, most);
	}
	return rc;
}

static int check_head(const struct stream *s)
{
	bool little = true;
	int64_t version = 0;

	mfs_value_int(s->doc[VERSION], mfs_pickle_root(s->doc[VERSION]), &version);
	if (version != PROTOCOL)
		return mfs_fail(s->err, -ENOTSUP,
				"%s: expected version %d of the format before torch 1.6, found "
				"%lld",
				s->src->name, PROTOCOL, (long long)version);
	mfs_value_bool(
		s->doc[SYSTEM],
		mfs_value_get(s->doc[SYSTEM], mfs_pickle_root(s->doc[SYSTEM]), "little_endian"),
		&little);
	return little ? 0
		      : mfs_fail(s->err, -ENOTSUP, "%s: written on a big-endian machine",
				 s->src->name);
}

/* ---- the storages that the object names ---- */

static int by_key(const void *a, const void *b)
{
	const struct named *x = a, *y = b;
	const size_t common = x->key_len < y->key_len ? x->key_len : y->key_len;
	const int order = memcmp(x->key, y->key, common);

	return order ? order : (x->key_len > y->key_len) - (x->key_len < y->key_len);
}

static int read_name(const struct stream *s, mfs_value id, struct named *ret)
{
	const struct mfs_pickle *doc = s->doc[OBJECT];
	char class_name[64];
	const char *text;
	int64_t elements;
	size_t len;

	text = mfs_value_class(doc, mfs_value_at(doc, id, 1), &len);
	snprintf(class_name, sizeof(class_name), "%.*s", (int)mfs_min_u64(len, 63), text);
	if (!mfs_value_str(doc, mfs_value_at(doc, id, 2), &ret->key, &ret->key_len) ||
	    !mfs_value_int(doc, mfs_value_at(doc, id, 4), &elements) || elements < 0)
		return mfs_fail(s->err, -EINVAL, "%s: a storage without key or size", s->src->name);
	if (!mfs_value_is_none(doc, mfs_value_at(doc, id, 5)))
		return mfs_fail(s->err, -ENOTSUP, "%s: storage '%.*s' is a view of another one",
				s->src->name, (int)mfs_min_u64(ret->key_len, 64), ret->key);
	ret->elements = (uint64_t)elements;
	ret->dtype = mfs_dtype_from_storage(class_name);
	if (!ret->dtype)
		return mfs_fail(s->err, -ENOTSUP,
				"%s: storage '%.*s' is of an unsupported element type (%s)",
				s->src->name, (int)mfs_min_u64(ret->key_len, 64), ret->key,
				class_name);
	return 0;
}

static bool is_storage(const struct mfs_pickle *doc, mfs_value v)
{
	return mfs_value_type(doc, v) == MFS_V_PERSID &&
	       mfs_value_is_str(doc, mfs_value_at(doc, mfs_value_persid(doc, v), 0), "storage");
}

static int list_names(const struct stream *s, struct named **ret, uint32_t *ret_count)
{
	const struct mfs_pickle *doc = s->doc[OBJECT];
	uint32_t count = 0;
	int rc = 0;

	for (mfs_value v = 0; v < mfs_pickle_values(doc); v++)
		count += is_storage(doc, v);
	*ret = calloc((size_t)count + 1, sizeof(**ret));
	if (!*ret)
		return mfs_fail_nomem(s->err);
	count = 0;
	for (mfs_value v = 0; v < mfs_pickle_values(doc) && !rc; v++)
		if (is_storage(doc, v))
			rc = read_name(s, mfs_value_persid(doc, v), &(*ret)[count++]);
	if (rc)
		return rc;
	qsort(*ret, count, sizeof(**ret), by_key);
	*ret_count = count;
	return 0;
}

/* ---- where they lie ---- */

static int wrong_storage(const struct stream *s, const struct named *n, const char *what)
{
	return mfs_fail(s->err, -EINVAL, "%s: storage '%.*s' %s", s->src->name,
			(int)mfs_min_u64(n->key_len, 64), n->key, what);
}

/* Adds the storage whose number of elements stands at *at, with the elements after it. Moves *at
 * past them. */
static int add_storage(const struct stream *s, const struct named *n, struct mfs_zip *zip,
		       uint64_t *at)
{
	struct mfs_zip_entry *e = &zip->entries[zip->count];
	uint8_t number[8];
	uint64_t bytes;
	char name[96];
	int rc;

	if (!mfs_range_ok(*at, sizeof(number), s->src->size))
		return wrong_storage(s, n, "is missing: the file is cut short");
	rc = mfs_source_read(s->src, *at, number, sizeof(number), s->err);
	if (rc)
		return rc;
	*at += sizeof(number);
	if (mfs_le64(number) != n->elements)
		return mfs_fail(
			s->err, -EINVAL, "%s: storage '%.*s': expected %llu elements, found %llu",
			s->src->name, (int)mfs_min_u64(n->key_len, 64), n->key,
			(unsigned long long)n->elements, (unsigned long long)mfs_le64(number));
	if (mfs_mul_overflows(n->elements, mfs_dtype_size(n->dtype), &bytes) ||
	    !mfs_range_ok(*at, bytes, s->src->size))
		return wrong_storage(s, n, "reaches beyond the file, which is cut short");
	if (n->key_len > 64 || memchr(n->key, 0, n->key_len))
		return wrong_storage(s, n, "has a key that is no short text");
	snprintf(name, sizeof(name), PREFIX "data/%.*s", (int)n->key_len, n->key);
	*e = (struct mfs_zip_entry){.name = mfs_arena_strndup(&zip->arena, name, strlen(name)),
				    .header = *at,
				    .size = bytes,
				    .limit = *at + bytes,
				    .bare = true};
	zip->count++;
	*at += bytes;
	return e->name ? 0 : mfs_fail_nomem(s->err);
}

static void add_pickle(const struct stream *s, struct mfs_zip *zip)
{
	const uint64_t size = mfs_pickle_length(s->doc[OBJECT]);

	zip->entries[zip->count++] = (struct mfs_zip_entry){.name = PREFIX "data.pkl",
							    .header = s->at[OBJECT],
							    .size = size,
							    .limit = s->at[OBJECT] + size,
							    .bare = true};
}

static int by_name(const void *a, const void *b)
{
	const struct mfs_zip_entry *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static int place(const struct stream *s, const struct named *names, uint32_t count,
		 struct mfs_zip *zip)
{
	const struct mfs_pickle *doc = s->doc[KEYS];
	const mfs_value keys = mfs_pickle_root(doc);
	const uint32_t key_count = mfs_value_count(doc, keys);
	uint64_t at = s->end;
	int rc = 0;

	zip->src = *s->src;
	if (key_count > count) /* so that keys cost what storages cost */
		return mfs_fail(s->err, -EINVAL, "%s: %u storages, but tensors of %u", s->src->name,
				key_count, count);
	zip->entries = mfs_arena_array(&zip->arena, (size_t)key_count + 1, sizeof(*zip->entries));
	if (!zip->entries)
		return mfs_fail_nomem(s->err);
	add_pickle(s, zip);
	for (uint32_t i = 0; i < key_count && !rc; i++) {
		struct named wanted = {0};
		const struct named *found = NULL;

		if (mfs_value_str(doc, mfs_value_at(doc, keys, i), &wanted.key, &wanted.key_len))
			found = bsearch(&wanted, names, count, sizeof(*names), by_key);
		rc = found ? add_storage(s, found, zip, &at)
			   : mfs_fail(s->err, -EINVAL, "%s: storage %u of the file is of no tensor",
				      s->src->name, i);
	}
	if (rc)
		return rc;
	if (at != s->src->size)
		return mfs_fail(s->err, -EINVAL, "%s: %llu bytes follow the last storage",
				s->src->name, (unsigned long long)(s->src->size - at));
	qsort(zip->entries, zip->count, sizeof(*zip->entries), by_name);
	for (uint32_t i = 1; i < zip->count; i++)
		if (!strcmp(zip->entries[i].name, zip->entries[i - 1].name))
			return mfs_fail(s->err, -EINVAL, "%s: '%s' is there twice", s->src->name,
					zip->entries[i].name);
	return 0;
}

/* Keeps the object's pickle alone. Its strings point into bytes that begin at the file's start. */
static void hand_over(struct stream *s, void **ret_bytes, struct mfs_pickle **ret_doc)
{
	*ret_bytes = s->bytes;
	*ret_doc = s->doc[OBJECT];
	s->bytes = NULL;
	s->doc[OBJECT] = NULL;
}

int mfs_torch_stream_open(const struct mfs_source *src, struct mfs_zip *ret, void **ret_bytes,
			  struct mfs_pickle **ret_doc, struct mfs_error *err)
{
	struct stream s = {.src = src, .err = err};
	struct mfs_zip zip = {0};
	struct named *names = NULL;
	uint32_t count = 0;
	int rc = parse(&s);

	if (!rc)
		rc = check_head(&s);
	if (!rc)
		rc = list_names(&s, &names, &count);
	if (!rc)
		rc = place(&s, names, count, &zip);
	free(names);
	if (rc) {
		mfs_zip_release(&zip);
	} else {
		*ret = zip;
		hand_over(&s, ret_bytes, ret_doc);
	}
	release(&s);
	return rc;
}
