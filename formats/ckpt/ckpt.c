#define _GNU_SOURCE
#include "formats/ckpt/ckpt.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "formats/base/bytes.h"
#include "formats/base/grow.h"
#include "formats/base/uthash.h"
#include "formats/ckpt/ckpt_i.h"

struct intern_entry {
	UT_hash_handle hh;
	char name[];
};

/* ---- which format (megatron/training/checkpointing.py:_get_checkpoint_format) ---- */

static bool exists(const char *dir, const char *name)
{
	char path[4096];
	struct stat st;

	return (size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) < sizeof(path) &&
	       !stat(path, &st);
}

static bool has_rank_dirs(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	bool found = false;

	while (d && !found && (e = readdir(d)))
		found = !strncmp(e->d_name, "mp_rank_", 8);
	if (d)
		closedir(d);
	return found;
}

static int detect(struct mfs_ckpt *ckpt, struct mfs_error *err)
{
	const char *dir = ckpt->dir;

	if (exists(dir, "metadata.json")) {
		ckpt->format = MFS_CKPT_TORCH_DIST;
		return 0;
	}
	if (has_rank_dirs(dir)) {
		ckpt->format = MFS_CKPT_TORCH;
		return 0;
	}
	if (exists(dir, ".metadata"))
		return mfs_fail(
			err, -ENODATA,
			"%s: metadata.json is missing: the save did not finish, or this is a plain "
			"torch DCP (FSDP) checkpoint",
			dir);
	if (exists(dir, ".metadata.tmp") || exists(dir, "common.pt"))
		return mfs_fail(err, -ENODATA, "%s: .metadata is missing: the save did not finish",
				dir);
	return mfs_fail(
		err, -ENODATA,
		"%s: neither metadata.json nor mp_rank_* directories: no Megatron checkpoint", dir);
}

/* ---- building ---- */

const char *mfs_ckpt_intern(struct mfs_ckpt *ckpt, const char *name)
{
	size_t len = strlen(name);
	struct intern_entry *e;

	HASH_FIND(hh, ckpt->names, name, len, e);
	if (e)
		return e->name;
	e = mfs_arena_alloc(&ckpt->arena, sizeof(*e) + len + 1);
	if (!e)
		return NULL;
	memcpy(e->name, name, len);
	HASH_ADD(hh, ckpt->names, name, len, e);
	return e->hh.tbl ? e->name : NULL;
}

int mfs_ckpt_add_storage(struct mfs_ckpt *ckpt, const struct mfs_storage *s, uint32_t *ret,
			 struct mfs_error *err)
{
	if (mfs_grow(&ckpt->storages, ckpt->storage_count))
		return mfs_fail_nomem(err);
	memcpy(&ckpt->storages[ckpt->storage_count], s, sizeof(*s));
	*ret = ckpt->storage_count++;
	return 0;
}

int mfs_ckpt_add_found(struct mfs_ckpt *ckpt, const struct mfs_found_chunk *piece,
		       struct mfs_error *err)
{
	if (mfs_grow(&ckpt->pieces, ckpt->piece_count))
		return mfs_fail_nomem(err);
	ckpt->pieces[ckpt->piece_count++] = *piece;
	return 0;
}

int mfs_ckpt_warn(struct mfs_ckpt *ckpt, const char *fmt, ...)
{
	const char **warnings;
	char *text;
	va_list ap;
	int len;

	warnings = mfs_arena_array(&ckpt->arena, ckpt->warning_count + 1, sizeof(*warnings));
	text = mfs_arena_alloc(&ckpt->arena, 512);
	if (!warnings || !text)
		return -ENOMEM;
	va_start(ap, fmt);
	len = vsnprintf(text, 512, fmt, ap);
	va_end(ap);
	(void)len;
	if (ckpt->warning_count)
		memcpy(warnings, ckpt->warnings, ckpt->warning_count * sizeof(*warnings));
	warnings[ckpt->warning_count++] = text;
	ckpt->warnings = warnings;
	return 0;
}

void mfs_ckpt_contiguous(const uint64_t *shape, unsigned ndim, uint64_t *stride)
{
	uint64_t step = 1;

	for (unsigned i = ndim; i-- > 0;) {
		stride[i] = step;
		/* Shapes are checked against their file's size before anything uses a stride. */
		if (mfs_mul_overflows(step, shape[i], &step))
			step = 0;
	}
}

static int compare_pieces(const void *a, const void *b)
{
	const struct mfs_found_chunk *x = a, *y = b;
	int order = x->name == y->name ? 0 : strcmp(x->name, y->name);

	if (x->state != y->state)
		return x->state < y->state ? -1 : 1;
	if (order)
		return order;
	if (x->layer != y->layer)
		return x->layer < y->layer ? -1 : 1;
	if (x->expert != y->expert)
		return x->expert < y->expert ? -1 : 1;
	for (unsigned i = 0; i < MFS_CKPT_DIMS; i++)
		if (x->chunk.lo[i] != y->chunk.lo[i])
			return x->chunk.lo[i] < y->chunk.lo[i] ? -1 : 1;
	return 0;
}

static bool same_tensor(const struct mfs_found_chunk *x, const struct mfs_found_chunk *y)
{
	return x->state == y->state && x->name == y->name && x->layer == y->layer &&
	       x->expert == y->expert;
}

static int compare_tensors(const void *a, const void *b)
{
	const struct mfs_global_tensor *x = a, *y = b;
	int order = (x->state > y->state) - (x->state < y->state);

	if (!order)
		order = strcmp(x->name, y->name);
	if (!order)
		order = (x->layer > y->layer) - (x->layer < y->layer);
	return order ? order : (x->expert > y->expert) - (x->expert < y->expert);
}

static int check_agreement(const struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t,
			   const struct mfs_found_chunk *p, struct mfs_error *err)
{
	char name[MFS_CKPT_NAME_SIZE], a[96], b[96];

	if (t->dtype == p->dtype && t->ndim == p->ndim &&
	    !memcmp(t->shape, p->shape, sizeof(t->shape)))
		return 0;
	return mfs_fail(err, -EINVAL, "%s: tensor '%s': one rank says %s %s, another %s %s",
			ckpt->dir, mfs_global_tensor_name(t, name, sizeof(name)),
			mfs_dtype_torch(t->dtype), mfs_shape_text(t->shape, t->ndim, a, sizeof(a)),
			mfs_dtype_torch(p->dtype), mfs_shape_text(p->shape, p->ndim, b, sizeof(b)));
}

/* Room behind the tensors and chunks that there are, for those that the pieces make. */
static int grow_tensors(struct mfs_ckpt *ckpt, uint32_t tensors, struct mfs_error *err)
{
	const size_t chunks = (size_t)ckpt->chunk_count + ckpt->piece_count;
	struct mfs_global_tensor *t;
	struct mfs_chunk *c;

	if (chunks > UINT32_MAX)
		return mfs_fail(err, -ENOTSUP, "%s: more than 2^32 chunks", ckpt->dir);
	t = reallocarray(ckpt->tensors, (size_t)ckpt->tensor_count + tensors, sizeof(*t));
	if (t)
		ckpt->tensors = t;
	c = reallocarray(ckpt->chunks, chunks, sizeof(*c));
	if (c)
		ckpt->chunks = c;
	return t && c ? 0 : mfs_fail_nomem(err);
}

static void start_tensor(struct mfs_ckpt *ckpt, const struct mfs_found_chunk *p)
{
	struct mfs_global_tensor *t = &ckpt->tensors[ckpt->tensor_count++];

	*t = (struct mfs_global_tensor){.name = p->name,
					.layer = p->layer,
					.expert = p->expert,
					.dtype = p->dtype,
					.ndim = p->ndim,
					.state = p->state,
					.first_chunk = ckpt->chunk_count};
	memcpy(t->shape, p->shape, sizeof(p->shape));
}

/* Pieces, in whatever order files gave them, become tensors with their chunks. */
int mfs_ckpt_group(struct mfs_ckpt *ckpt, struct mfs_error *err)
{
	const uint32_t count = ckpt->piece_count;
	uint32_t tensors = 0;
	int rc = 0;

	if (!count)
		return 0;
	qsort(ckpt->pieces, count, sizeof(*ckpt->pieces), compare_pieces);
	for (uint32_t i = 0; i < count; i++)
		tensors += !i || !same_tensor(&ckpt->pieces[i - 1], &ckpt->pieces[i]);
	rc = grow_tensors(ckpt, tensors, err);
	for (uint32_t i = 0; i < count && !rc; i++) {
		const struct mfs_found_chunk *p = &ckpt->pieces[i];

		if (!i || !same_tensor(p - 1, p))
			start_tensor(ckpt, p);
		rc = check_agreement(ckpt, &ckpt->tensors[ckpt->tensor_count - 1], p, err);
		if (rc)
			break;
		ckpt->chunks[ckpt->chunk_count++] = p->chunk;
		ckpt->tensors[ckpt->tensor_count - 1].chunk_count++;
	}
	free(ckpt->pieces);
	ckpt->pieces = NULL;
	ckpt->piece_count = 0;
	if (rc)
		return rc;
	qsort(ckpt->tensors, ckpt->tensor_count, sizeof(*ckpt->tensors), compare_tensors);
	while (ckpt->model_count < ckpt->tensor_count &&
	       ckpt->tensors[ckpt->model_count].state == MFS_STATE_MODEL)
		ckpt->model_count++;
	return 0;
}

int mfs_ckpt_read_state(struct mfs_ckpt *ckpt, const struct mfs_pickle *doc, mfs_value state,
			const char *file, struct mfs_error *err)
{
	mfs_value args = mfs_value_get(doc, state, "args");
	double version = 0;
	int rc;

	if (mfs_value_is_none(doc, args))
		return mfs_fail(
			err, -ENOTSUP,
			"%s/%s: no 'args' in it: only checkpoints of Megatron-LM's own training "
			"loop carry the model's arguments",
			ckpt->dir, file);
	/* Before 2.0 the rows of query_key_value had other orders (fix_query_key_value_ordering). */
	if (mfs_value_float(doc, mfs_value_get(doc, state, "checkpoint_version"), &version) &&
	    version < 2.0)
		return mfs_fail(err, -ENOTSUP,
				"%s/%s: checkpoint_version %.1f of 2020 is not supported",
				ckpt->dir, file, version);
	rc = mfs_megatron_args_read(doc, args, &ckpt->arena, &ckpt->args, err);
	return rc ? (mfs_fail_in(err, "%s/%s", ckpt->dir, file), rc) : 0;
}

/* ---- life ---- */

int mfs_ckpt_new(const char *dir, unsigned what, enum mfs_ckpt_format format, struct mfs_ckpt **ret,
		 struct mfs_error *err)
{
	struct mfs_ckpt *ckpt = calloc(1, sizeof(*ckpt));
	int rc;

	if (!ckpt)
		return mfs_fail_nomem(err);
	ckpt->dir = strdup(dir);
	ckpt->format = format;
	ckpt->what = what & MFS_CKPT_OPTIMIZER ? what | MFS_CKPT_COMMON : what;
	rc = ckpt->dir ? mfs_fileset_new(dir, &ckpt->files, err) : mfs_fail_nomem(err);
	if (rc) {
		mfs_ckpt_free(ckpt);
		return rc;
	}
	*ret = ckpt;
	return 0;
}

void mfs_ckpt_done(struct mfs_ckpt *ckpt)
{
	HASH_CLEAR(hh, ckpt->names); /* the entries lie in the arena */
}

int mfs_ckpt_open(const char *dir, unsigned what, struct mfs_ckpt **ret, struct mfs_error *err)
{
	struct mfs_ckpt *ckpt;
	int rc = mfs_ckpt_new(dir, what, MFS_CKPT_TORCH, &ckpt, err);

	if (rc)
		return rc;
	rc = detect(ckpt, err);
	if (!rc)
		rc = ckpt->format == MFS_CKPT_TORCH ? mfs_ckpt_read_torch(ckpt, err)
						    : mfs_ckpt_read_dist(ckpt, err);
	if (!rc)
		rc = mfs_ckpt_group(ckpt, err);
	if (!rc && !ckpt->model_count)
		rc = mfs_fail(err, -ENODATA, "%s: no model tensors in it", ckpt->dir);
	mfs_ckpt_done(ckpt);
	if (rc) {
		mfs_ckpt_free(ckpt);
		return rc;
	}
	*ret = ckpt;
	return 0;
}

void mfs_ckpt_free(struct mfs_ckpt *ckpt)
{
	if (!ckpt)
		return;
	mfs_ckpt_done(ckpt);
	if (ckpt->has_state)
		mfs_torch_file_release(&ckpt->state.archive);
	for (uint32_t i = 0; i < ckpt->optim_file_count; i++)
		mfs_torch_file_release(&ckpt->optim_files[i]);
	mfs_ckpt_drop_dcp(ckpt);
	mfs_fileset_free(ckpt->files);
	mfs_arena_release(&ckpt->arena);
	free(ckpt->pieces);
	free(ckpt->storages);
	free(ckpt->chunks);
	free(ckpt->tensors);
	free(ckpt->dir);
	free(ckpt);
}

/* ---- looking ---- */

enum mfs_ckpt_format mfs_ckpt_format(const struct mfs_ckpt *ckpt)
{
	return ckpt->format;
}

const char *mfs_ckpt_dir(const struct mfs_ckpt *ckpt)
{
	return ckpt->dir;
}

struct mfs_fileset *mfs_ckpt_files(const struct mfs_ckpt *ckpt)
{
	return ckpt->files;
}

const struct mfs_megatron_args *mfs_ckpt_args(const struct mfs_ckpt *ckpt)
{
	return &ckpt->args;
}

const struct mfs_ckpt_layout *mfs_ckpt_layout(const struct mfs_ckpt *ckpt)
{
	return &ckpt->layout;
}

uint32_t mfs_ckpt_count(const struct mfs_ckpt *ckpt)
{
	return ckpt->model_count;
}

uint32_t mfs_ckpt_count_all(const struct mfs_ckpt *ckpt)
{
	return ckpt->tensor_count;
}

const struct mfs_global_tensor *mfs_ckpt_at(const struct mfs_ckpt *ckpt, uint32_t i)
{
	return &ckpt->tensors[i];
}

const struct mfs_global_tensor *mfs_ckpt_find(const struct mfs_ckpt *ckpt, const char *name,
					      int32_t layer, int32_t expert)
{
	return mfs_ckpt_find_state(ckpt, MFS_STATE_MODEL, name, layer, expert);
}

const struct mfs_global_tensor *mfs_ckpt_find_state(const struct mfs_ckpt *ckpt,
						    enum mfs_state state, const char *name,
						    int32_t layer, int32_t expert)
{
	const struct mfs_global_tensor key = {
		.state = state, .name = name, .layer = layer, .expert = expert};

	return ckpt->tensor_count ? bsearch(&key, ckpt->tensors, ckpt->tensor_count, sizeof(key),
					    compare_tensors)
				  : NULL;
}

const struct mfs_ckpt_common *mfs_ckpt_common(const struct mfs_ckpt *ckpt)
{
	return ckpt->has_state ? &ckpt->state : NULL;
}

const char *mfs_state_name(enum mfs_state state)
{
	static const char *const names[MFS_STATE_COUNT] = {"", "fp32_param", "exp_avg",
							   "exp_avg_sq"};

	return names[state];
}

const struct mfs_chunk *mfs_ckpt_chunks(const struct mfs_ckpt *ckpt,
					const struct mfs_global_tensor *t)
{
	return ckpt->chunks + t->first_chunk;
}

bool mfs_global_tensor_is_vocabulary(const struct mfs_global_tensor *t)
{
	return t->layer < 0 && t->ndim &&
	       (!strcmp(t->name, "embedding.word_embeddings.weight") ||
		!strcmp(t->name, "output_layer.weight"));
}

const char *mfs_global_tensor_name(const struct mfs_global_tensor *t, char *text, size_t size)
{
	static const char *const prefixes[] = {"decoder.layers.", "mtp.layers."};
	static const char experts[] = "mlp.experts.experts.";
	const char *rest = t->name, *at;
	size_t used;

	used = (size_t)snprintf(text, size, "%s%s", mfs_state_name(t->state),
				t->state ? " of " : "");
	for (size_t i = 0; i < 2 && t->layer >= 0; i++) {
		size_t len = strlen(prefixes[i]);

		if (strncmp(rest, prefixes[i], len))
			continue;
		used += (size_t)snprintf(text + used, size - used, "%s%d.", prefixes[i], t->layer);
		rest += len;
		break;
	}
	at = t->expert >= 0 ? strstr(rest, experts) : NULL;
	if (at && used < size) {
		at += sizeof(experts) - 1;
		used += (size_t)snprintf(text + used, size - used, "%.*s%d.", (int)(at - rest),
					 rest, t->expert);
		rest = at;
	}
	if (used < size)
		snprintf(text + used, size - used, "%s", rest);
	return text;
}

uint32_t mfs_ckpt_warnings(const struct mfs_ckpt *ckpt, const char *const **ret)
{
	*ret = ckpt->warnings;
	return ckpt->warning_count;
}

/* The local header in front of a record of a legacy file. */
static int locate_record(struct mfs_ckpt *ckpt, const struct mfs_storage *s, uint64_t *ret,
			 struct mfs_record *ret_record, struct mfs_error *err)
{
	struct mfs_source src = mfs_source_file(ckpt->files, s->file);
	struct mfs_zip_entry e = {.name = s->record,
				  .header = s->at,
				  .size = s->length,
				  .limit = s->limit,
				  .crc = s->crc};
	int rc = mfs_zip_locate(&src, &e, ret, err);

	if (!rc)
		*ret_record = (struct mfs_record){*ret, s->length, s->crc};
	return rc;
}

static int locate(struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t,
		  const struct mfs_storage *s, uint64_t *ret, struct mfs_record *ret_record,
		  struct mfs_error *err)
{
	char name[MFS_CKPT_NAME_SIZE];
	int rc = 0;

	switch (s->container) {
	case MFS_IN_RECORD:
		rc = locate_record(ckpt, s, ret, ret_record, err);
		break;
	case MFS_IN_ITEM:
		rc = mfs_ckpt_locate_item(ckpt, s, ret, ret_record, err);
		break;
	case MFS_IN_FILE:
		*ret = s->at;
		*ret_record = (struct mfs_record){s->at, s->length, 0};
		break;
	}
	if (rc)
		mfs_fail_in(err, "tensor '%s'", mfs_global_tensor_name(t, name, sizeof(name)));
	return rc;
}

int mfs_ckpt_locate(struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t, uint32_t storage,
		    uint32_t *ret_file, uint64_t *ret_offset, struct mfs_error *err)
{
	struct mfs_storage *s = &ckpt->storages[storage];
	uint64_t data = atomic_load_explicit(&s->data, memory_order_relaxed);
	struct mfs_record record;
	int rc;

	if (!data) {
		rc = locate(ckpt, t, s, &data, &record, err);
		if (rc)
			return rc;
		/* Whoever else looked found the same number. */
		atomic_store_explicit(&s->data, ++data, memory_order_relaxed);
	}
	*ret_file = s->file;
	*ret_offset = data - 1;
	return 0;
}

/* ---- checksums ---- */

#define CHECK_WINDOW (1u << 20)

uint32_t mfs_ckpt_storage_count(const struct mfs_ckpt *ckpt)
{
	return ckpt->storage_count;
}

static int sum_record(struct mfs_ckpt *ckpt, uint32_t file, const struct mfs_record *record,
		      uint32_t *ret, struct mfs_error *err)
{
	uint8_t *window = malloc(CHECK_WINDOW);
	uint64_t done = 0;
	uLong crc = 0;
	int rc = window ? 0 : mfs_fail_nomem(err);

	while (done < record->length && !rc) {
		size_t n = mfs_min_u64(CHECK_WINDOW, record->length - done);

		rc = mfs_fileset_read(ckpt->files, file, record->at + done, window, n, err);
		if (!rc)
			crc = crc32_z(crc, window, n);
		mfs_fileset_served(ckpt->files, n);
		done += n;
	}
	free(window);
	if (!rc)
		*ret = (uint32_t)crc;
	return rc;
}

int mfs_ckpt_check_bytes(struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t, uint32_t storage,
			 bool *ret_checked, struct mfs_error *err)
{
	const struct mfs_storage *s = &ckpt->storages[storage];
	char name[MFS_CKPT_NAME_SIZE];
	struct mfs_record record;
	uint32_t crc = 0;
	uint64_t data;
	int rc = locate(ckpt, t, s, &data, &record, err);

	if (!rc && record.crc)
		rc = sum_record(ckpt, s->file, &record, &crc, err);
	if (rc)
		return rc;
	*ret_checked = record.crc != 0;
	if (crc == record.crc)
		return 0;
	return mfs_fail(err, -EINVAL,
			"%s/%s: tensor '%s': its bytes have CRC-32 %08x, expected %08x", ckpt->dir,
			mfs_fileset_name(ckpt->files, s->file),
			mfs_global_tensor_name(t, name, sizeof(name)), crc, record.crc);
}
