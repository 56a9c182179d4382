#include "formats/indexed/indexed_dataset.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "formats/indexed/indexed_dataset_i.h"
#include "formats/io/fileset.h"
#include "formats/io/guard.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "arrays are copied as they are on disk");

static const char magic[9] = "MMIDIDX\0";
static const char legacy_magic[8] = "TNTIDX\0";

static const struct {
	enum mfs_dtype dtype;
} codes[] = {
	[1] = {MFS_U8},	 [2] = {MFS_I8},  [3] = {MFS_I16}, [4] = {MFS_I32},
	[5] = {MFS_I64}, [6] = {MFS_F64}, [7] = {MFS_F32}, [8] = {MFS_U16},
};

enum mfs_dtype mfs_idx_dtype(uint8_t code)
{
	return code < MFS_ARRAY_SIZE(codes) ? codes[code].dtype : MFS_DTYPE_NONE;
}

uint8_t mfs_idx_code(enum mfs_dtype dtype)
{
	for (size_t i = 1; i < MFS_ARRAY_SIZE(codes); i++)
		if (codes[i].dtype == dtype)
			return (uint8_t)i;
	return 0;
}

/* ---- one .idx ---- */

static int read_magic(const struct mfs_idx_member *p, uint64_t size, struct mfs_error *err)
{
	uint8_t head[MFS_IDX_HEADER] = {0};
	int rc = mfs_idx_copy(p, 0, head, mfs_min_u64(size, sizeof(head)), err);

	if (rc)
		return rc;
	if (size >= sizeof(legacy_magic) && !memcmp(head, legacy_magic, sizeof(legacy_magic)))
		return mfs_fail(
			err, -ENOTSUP,
			"%s.idx: it is in the format from before 2021 (TNTIDX): make it again "
			"with a current tools/preprocess_data.py",
			p->name);
	if (size < sizeof(head) || memcmp(head, magic, sizeof(magic)))
		return mfs_fail(err, -EINVAL, "%s.idx: not the index of an indexed dataset",
				p->name);
	if (mfs_le64(head + 9) != 1)
		return mfs_fail(err, -ENOTSUP, "%s.idx: version %llu; only 1 is known", p->name,
				(unsigned long long)mfs_le64(head + 9));
	return 0;
}

/* The size of the file must follow from its counts, with modes or without. Nothing else says
 * whether it has modes. */
static int place_arrays(struct mfs_idx_member *p, uint64_t size, struct mfs_error *err)
{
	uint64_t lengths, pointers, documents, end;

	if (mfs_mul_overflows(p->sequences, 4, &lengths) ||
	    mfs_mul_overflows(p->sequences, 8, &pointers) ||
	    mfs_mul_overflows(p->entries, 8, &documents) ||
	    mfs_add_overflows(MFS_IDX_HEADER, lengths, &p->pointers_at) ||
	    mfs_add_overflows(p->pointers_at, pointers, &p->documents_at) ||
	    mfs_add_overflows(p->documents_at, documents, &p->modes_at) ||
	    mfs_add_overflows(p->modes_at, p->sequences, &end))
		return mfs_fail(err, -EINVAL,
				"%s.idx: it cannot have %llu sequences and %llu documents", p->name,
				(unsigned long long)p->sequences, (unsigned long long)p->entries);
	if (size != p->modes_at && size != end)
		return mfs_fail(err, -EINVAL,
				"%s.idx: expected %llu bytes for %llu sequences and %llu document "
				"entries, found %llu",
				p->name, (unsigned long long)p->modes_at,
				(unsigned long long)p->sequences, (unsigned long long)p->entries,
				(unsigned long long)size);
	p->multimodal = size == end && p->sequences;
	return 0;
}

/* Document entries are one more than documents: the first is 0, the last is N. */
static int check_documents(const struct mfs_idx_member *p, struct mfs_error *err)
{
	uint8_t first[8], last[8];
	int rc;

	if (!p->entries)
		return mfs_fail(err, -EINVAL,
				"%s.idx: its document array is empty; it must begin with 0",
				p->name);
	rc = mfs_idx_copy(p, p->documents_at, first, sizeof(first), err);
	if (!rc)
		rc = mfs_idx_copy(p, p->documents_at + 8 * (p->entries - 1), last, sizeof(last),
				  err);
	if (rc)
		return rc;
	if (mfs_le64(first) || mfs_le64(last) != p->sequences)
		return mfs_fail(
			err, -EINVAL,
			"%s.idx: documents go from sequence %lld to %lld, expected 0 to %llu",
			p->name, (long long)mfs_le64(first), (long long)mfs_le64(last),
			(unsigned long long)p->sequences);
	return 0;
}

static int read_member(struct mfs_idx_member *p, uint64_t size, struct mfs_error *err)
{
	uint8_t head[MFS_IDX_HEADER];
	int rc = read_magic(p, size, err);

	if (!rc)
		rc = mfs_idx_copy(p, 0, head, sizeof(head), err);
	if (rc)
		return rc;
	p->code = head[17];
	p->token_size = mfs_dtype_size(mfs_idx_dtype(p->code));
	p->sequences = mfs_le64(head + 18);
	p->entries = mfs_le64(head + 26);
	if (!p->token_size)
		return mfs_fail(err, -EINVAL, "%s.idx: dtype code is %u, expected 1 to 8", p->name,
				p->code);
	rc = place_arrays(p, size, err);
	if (!rc)
		rc = check_documents(p, err);
	return rc ? rc : mfs_idx_judge_pointers(p, err);
}

/* ---- files ---- */

static int add_set(struct mfs_indexed_dataset *d, const char *dir, struct mfs_error *err)
{
	int rc = mfs_fileset_new(dir, &d->sets[d->set_count], err);

	if (!rc)
		d->set_count++;
	return rc;
}

/* The two sets of a directory, one after the other in sets. All prefixes in the directory share
 * them. */
static int sets_of(struct mfs_indexed_dataset *d, struct mfs_idx_member *p, const char *dir,
		   struct mfs_error *err)
{
	size_t end = d->set_count;
	int rc = 0;

	while (end && strcmp(mfs_fileset_dir(d->sets[end - 1]), dir))
		end -= 2;
	if (!end) {
		rc = add_set(d, dir, err);
		if (!rc)
			rc = add_set(d, dir, err);
		end = d->set_count;
	}
	if (rc)
		return rc;
	p->idx_set = d->sets[end - 2];
	p->bin_set = d->sets[end - 1];
	return 0;
}

static int open_files(struct mfs_indexed_dataset *d, struct mfs_idx_member *p,
		      struct mfs_error *err)
{
	const char *slash = strrchr(p->name, '/'), *base = slash ? slash + 1 : p->name, *dir, *idx,
		   *bin;
	int rc;

	dir = !slash		 ? "."
	      : slash == p->name ? "/"
				 : mfs_arena_strndup(&d->arena, p->name, (size_t)(slash - p->name));
	idx = mfs_arena_printf(&d->arena, "%s.idx", base);
	bin = mfs_arena_printf(&d->arena, "%s.bin", base);
	if (!dir || !idx || !bin)
		return mfs_fail_nomem(err);
	rc = sets_of(d, p, dir, err);
	if (!rc)
		rc = mfs_fileset_add(p->idx_set, idx, &p->idx_file, err);
	if (!rc)
		rc = mfs_fileset_add(p->bin_set, bin, &p->bin_file, err);
	if (!rc)
		rc = mfs_fileset_map(p->idx_set, p->idx_file, &p->idx, err);
	if (rc)
		return rc;
	p->bin_size = mfs_fileset_size(p->bin_set, p->bin_file);
	return read_member(p, mfs_fileset_size(p->idx_set, p->idx_file), err);
}

/* ---- several as one ---- */

/* A prefix without sequences agrees with both. All others must be as the first of them. */
static int check_modes(const struct mfs_indexed_dataset *d, const struct mfs_idx_member *p,
		       struct mfs_error *err)
{
	const struct mfs_idx_member *first = d->members;

	while (first < p && !first->sequences)
		first++;
	if (!p->sequences || p->multimodal == first->multimodal)
		return 0;
	return mfs_fail(err, -EINVAL, "%s.idx and %s.idx: one has modes, the other has none",
			p->name, first->name);
}

static int join_member(struct mfs_indexed_dataset *d, struct mfs_idx_member *p,
		       struct mfs_error *err)
{
	struct mfs_indexed_info *info = &d->info;
	const struct mfs_idx_member *first = d->members;
	int rc;

	if (p->code != first->code)
		return mfs_fail(err, -EINVAL, "%s.idx has dtype code %u, %s.idx has %u", p->name,
				p->code, first->name, first->code);
	rc = check_modes(d, p, err);
	if (rc)
		return rc;
	p->first_sequence = info->sequences;
	p->first_entry = info->document_entries;
	p->first_byte = info->bin_size;
	/* Sizes of arrays were checked, so that neither count is near 2^61; files are below
	 * 2^63. */
	if (mfs_add_overflows(info->sequences, p->sequences, &info->sequences) ||
	    mfs_add_overflows(info->document_entries, p->entries - 1, &info->document_entries) ||
	    mfs_add_overflows(info->bin_size, p->bin_size, &info->bin_size) ||
	    info->bin_size > INT64_MAX)
		return mfs_fail(err, -EINVAL, "%s: too large together with the ones before it",
				p->name);
	info->multimodal |= p->multimodal;
	info->bin_short |= p->bin_short;
	if (p->pointers > info->pointers)
		info->pointers = p->pointers;
	return 0;
}

static void warn(struct mfs_indexed_dataset *d)
{
	for (size_t i = 0; i < d->member_count && !d->warning[0]; i++) {
		const struct mfs_idx_member *p = &d->members[i];

		if (p->bin_short)
			snprintf(d->warning, sizeof(d->warning),
				 "%.150s.bin ends at byte %llu, before its .idx says", p->name,
				 (unsigned long long)p->bin_size);
		else if (p->pointers == MFS_POINTERS_REPAIRED)
			snprintf(d->warning, sizeof(d->warning),
				 "%.150s.idx: its pointers have overflowed; computed from the "
				 "lengths",
				 p->name);
		else if (p->pointers == MFS_POINTERS_AS_WRITTEN)
			snprintf(d->warning, sizeof(d->warning),
				 "%.150s.idx: sequences do not lie back to back in the .bin of "
				 "%llu bytes",
				 p->name, (unsigned long long)p->bin_size);
	}
}

static int join(struct mfs_indexed_dataset *d, struct mfs_error *err)
{
	int rc = 0;

	d->info.dtype_code = d->members->code;
	d->info.dtype = mfs_idx_dtype(d->members->code);
	d->info.token_size = d->members->token_size;
	d->info.document_entries = 1;
	for (size_t i = 0; i < d->member_count && !rc; i++)
		rc = join_member(d, &d->members[i], err);
	/* A member's entries but its first one are counted from 1. */
	for (size_t i = 0; i < d->member_count; i++)
		d->members[i].first_entry--;
	warn(d);
	return rc;
}

static struct mfs_indexed_dataset *new_dataset(size_t members)
{
	struct mfs_indexed_dataset *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->member_count = members;
	d->members = mfs_arena_array(&d->arena, members, sizeof(*d->members));
	d->sets = mfs_arena_array(&d->arena, 2 * members, sizeof(struct mfs_fileset *));
	if (d->members && d->sets)
		return d;
	d->member_count = 0;
	mfs_indexed_dataset_free(d);
	return NULL;
}

int mfs_indexed_dataset_open(const char *const *prefixes, size_t count,
			     struct mfs_indexed_dataset **ret, struct mfs_error *err)
{
	struct mfs_indexed_dataset *d;
	int rc = 0;

	if (!count)
		return mfs_fail(err, -EINVAL, "no indexed dataset was named");
	d = new_dataset(count);
	if (!d)
		return mfs_fail_nomem(err);
	for (size_t i = 0; i < count && !rc; i++) {
		d->members[i].name = mfs_arena_strndup(&d->arena, prefixes[i], strlen(prefixes[i]));
		rc = d->members[i].name ? open_files(d, &d->members[i], err) : mfs_fail_nomem(err);
	}
	if (!rc)
		rc = join(d, err);
	if (rc) {
		mfs_indexed_dataset_free(d);
		return rc;
	}
	*ret = d;
	return 0;
}

int mfs_indexed_dataset_memory(const void *idx, uint64_t idx_size, uint64_t bin_size,
			       const char *name, struct mfs_indexed_dataset **ret,
			       struct mfs_error *err)
{
	struct mfs_indexed_dataset *d = new_dataset(1);
	int rc;

	if (!d)
		return mfs_fail_nomem(err);
	d->members->name = name;
	d->members->idx = idx;
	d->members->bin_size = bin_size;
	rc = read_member(d->members, idx_size, err);
	if (!rc)
		rc = join(d, err);
	if (rc) {
		mfs_indexed_dataset_free(d);
		return rc;
	}
	*ret = d;
	return 0;
}

void mfs_indexed_dataset_free(struct mfs_indexed_dataset *d)
{
	if (!d)
		return;
	for (size_t i = 0; i < d->member_count; i++)
		free(d->members[i].sums);
	for (size_t i = 0; i < d->set_count; i++)
		mfs_fileset_free(d->sets[i]);
	mfs_arena_release(&d->arena);
	free(d);
}

const struct mfs_indexed_info *mfs_indexed_dataset_info(const struct mfs_indexed_dataset *d)
{
	return &d->info;
}

const char *mfs_indexed_dataset_warning(const struct mfs_indexed_dataset *d)
{
	return d->warning;
}

int mfs_indexed_dataset_check(const struct mfs_indexed_dataset *d, struct mfs_error *err)
{
	return mfs_filesets_check(d->sets, d->set_count, err);
}

void mfs_indexed_dataset_drop(const struct mfs_indexed_dataset *d)
{
	/* As if so much had been served that the set does it. */
	for (size_t i = 0; i < d->set_count; i += 2)
		mfs_fileset_served(d->sets[i], (uint64_t)1 << 30);
}
