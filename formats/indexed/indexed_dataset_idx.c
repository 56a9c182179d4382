/* A dataset's .idx as one file, and one pass over everything in it. */
#include <errno.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/indexed/indexed_dataset_i.h"

#define CHUNK 4096 /* elements at once */

/* ---- the file ---- */

enum section { HEADER, LENGTHS, POINTERS, DOCUMENTS, MODES, SECTIONS };

static uint64_t section_size(const struct mfs_indexed_dataset *d, enum section s)
{
	switch (s) {
	case HEADER:
		return MFS_IDX_HEADER;
	case LENGTHS:
		return 4 * d->info.sequences;
	case POINTERS:
		return 8 * d->info.sequences;
	case DOCUMENTS:
		return 8 * d->info.document_entries;
	default:
		return d->info.multimodal ? d->info.sequences : 0;
	}
}

uint64_t mfs_indexed_dataset_idx_size(const struct mfs_indexed_dataset *d)
{
	uint64_t size = 0;

	for (enum section s = HEADER; s < SECTIONS; s++)
		size += section_size(d, s);
	return size;
}

static void fill_header(const struct mfs_indexed_dataset *d, uint8_t ret[MFS_IDX_HEADER])
{
	memcpy(ret, "MMIDIDX\0", 9);
	mfs_put_le64(ret + 9, 1);
	ret[17] = d->info.dtype_code;
	mfs_put_le64(ret + 18, d->info.sequences);
	mfs_put_le64(ret + 26, d->info.document_entries);
}

/* Gives lengths as they are stored, faults included: the reader of the file finds the faults. */
static int raw_lengths(const struct mfs_indexed_dataset *d, uint64_t first, uint64_t count,
		       int32_t *ret, struct mfs_error *err)
{
	int rc = 0;

	for (uint64_t n; count && !rc; first += n, count -= n, ret += n) {
		const struct mfs_idx_member *p = mfs_idx_member_of(d, first);

		n = mfs_min_u64(count, p->first_sequence + p->sequences - first);
		rc = mfs_idx_lengths(p, first - p->first_sequence, n, ret, err);
	}
	return rc;
}

static const uint8_t element_size[] = {
	[HEADER] = 1, [LENGTHS] = 4, [POINTERS] = 8, [DOCUMENTS] = 8, [MODES] = 1,
};

static int elements(const struct mfs_indexed_dataset *d, enum section s, uint64_t first,
		    uint64_t count, void *ret, struct mfs_error *err)
{
	uint8_t header[MFS_IDX_HEADER];

	switch (s) {
	case HEADER:
		fill_header(d, header);
		memcpy(ret, header + first, count);
		return 0;
	case LENGTHS:
		return raw_lengths(d, first, count, ret, err);
	case POINTERS:
		return mfs_indexed_dataset_pointers(d, first, count, ret, err);
	case DOCUMENTS:
		return mfs_indexed_dataset_documents(d, first, count, ret, err);
	default:
		return mfs_indexed_dataset_modes(d, first, count, ret, err);
	}
}

/* Bytes of one section, which hold the range. */
static int read_section(const struct mfs_indexed_dataset *d, enum section s, uint64_t off,
			uint8_t *buf, uint64_t len, struct mfs_error *err)
{
	const uint64_t size = element_size[s];
	int64_t chunk[CHUNK];

	for (uint64_t n; len; off += n, buf += n, len -= n) {
		const uint64_t first = off / size, skip = off % size;
		const uint64_t count = mfs_min_u64(CHUNK, (skip + len + size - 1) / size);
		int rc = elements(d, s, first, count, chunk, err);

		if (rc)
			return rc;
		n = mfs_min_u64(len, count * size - skip);
		memcpy(buf, (uint8_t *)chunk + skip, n);
	}
	return 0;
}

int mfs_indexed_dataset_idx_read(const struct mfs_indexed_dataset *d, uint64_t off, void *buf,
				 size_t len, struct mfs_error *err)
{
	uint8_t *to = buf;
	int rc = mfs_idx_check_range("bytes of the .idx", off, len, mfs_indexed_dataset_idx_size(d),
				     err);

	for (enum section s = HEADER; s < SECTIONS && len && !rc; s++) {
		const uint64_t size = section_size(d, s);
		uint64_t n;

		if (off >= size) {
			off -= size;
			continue;
		}
		n = mfs_min_u64(len, size - off);
		rc = read_section(d, s, off, to, n, err);
		off = 0;
		to += n;
		len -= n;
	}
	return rc;
}

/* ---- validation ---- */

/* The first fault of all makes the sentence. */
static void fault(const struct mfs_idx_member *p, uint64_t *count, struct mfs_error *first,
		  const char *what, uint64_t i, int64_t value)
{
	++*count;
	if (!first->code)
		mfs_error_set(first, -EINVAL, "%s.idx: %s %llu: %lld", p->name, what,
			      (unsigned long long)i, (long long)value);
}

static void check_sequence(const struct mfs_idx_member *p, uint64_t i, int32_t length,
			   int64_t pointer, int64_t *end, struct mfs_indexed_report *r,
			   struct mfs_error *first)
{
	const uint64_t bytes = (uint64_t)(length < 0 ? 0 : length) * p->token_size;

	if (length < 0)
		fault(p, &r->bad_lengths, first, "length of sequence", i, length);
	if (pointer != *end)
		fault(p, &r->jumps, first, "not after the one before it: pointer of sequence", i,
		      pointer);
	if (bytes && (pointer < 0 || !mfs_range_ok((uint64_t)pointer, bytes, p->bin_size)))
		fault(p, &r->outside, first, "outside of the .bin: pointer of sequence", i,
		      pointer);
	r->empty_sequences += !length;
	r->tokens += length < 0 ? 0 : (uint64_t)length;
	*end = (int64_t)((uint64_t)pointer + bytes);
}

static int check_sequences(const struct mfs_idx_member *p, struct mfs_indexed_report *r,
			   struct mfs_error *first, struct mfs_error *err)
{
	int32_t lengths[CHUNK];
	int64_t pointers[CHUNK], end = 0;

	for (uint64_t at = 0, n; at < p->sequences; at += n) {
		int rc;

		n = mfs_min_u64(CHUNK, p->sequences - at);
		rc = mfs_idx_lengths(p, at, n, lengths, err);
		if (!rc)
			rc = mfs_idx_pointers(p, at, n, pointers, err);
		if (rc)
			return rc;
		for (uint64_t i = 0; i < n; i++)
			check_sequence(p, at + i, lengths[i], pointers[i], &end, r, first);
	}
	return 0;
}

static int check_entries(const struct mfs_idx_member *p, struct mfs_indexed_report *r,
			 struct mfs_error *first, struct mfs_error *err)
{
	int64_t entries[CHUNK], before = 0;

	for (uint64_t at = 0, n; at < p->entries; at += n) {
		int rc;

		n = mfs_min_u64(CHUNK, p->entries - at);
		rc = mfs_idx_copy(p, p->documents_at + 8 * at, entries, 8 * n, err);
		if (rc)
			return rc;
		for (uint64_t i = 0; i < n; i++) {
			if (entries[i] < before || (uint64_t)entries[i] > p->sequences)
				fault(p, &r->bad_documents, first, "end of document", at + i,
				      entries[i]);
			else
				before = entries[i];
		}
	}
	return 0;
}

int mfs_indexed_dataset_validate(const struct mfs_indexed_dataset *d,
				 struct mfs_indexed_report *ret, struct mfs_error *err)
{
	struct mfs_error first = {0};
	int rc = 0;

	*ret = (struct mfs_indexed_report){0};
	for (size_t i = 0; i < d->member_count && !rc; i++) {
		rc = check_sequences(&d->members[i], ret, &first, err);
		if (!rc)
			rc = check_entries(&d->members[i], ret, &first, err);
	}
	if (!rc && first.code) {
		if (err)
			*err = first;
		rc = first.code;
	}
	return rc;
}
