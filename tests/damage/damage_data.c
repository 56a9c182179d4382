/*
 * damage_data CHANGES PREFIX...: damage (trials.h) to indexed datasets, which are opened as one and
 * read row by row; damage_data CHANGES multimodal|gaps|overflowed: to one that is made up.
 *
 * What is right is read from the damaged bytes by the format's definition, here. A row that lies
 * inside of its .bin must be readable, and be those bytes; another must be -EIO and be known as
 * such.
 */
#define _GNU_SOURCE
#include "formats/base/array.h"
#include "tests/damage/trials.h"

#include "formats/base/bytes.h"
#include "formats/dataset/rows/rows_indexed.h"
#include "formats/indexed/indexed_dataset.h"
#include "formats/indexed/indexed_dataset_write.h"
#include "formats/io/fileset.h"

#define MAX_PREFIXES 4
#define PIECE	     4096 /* tokens that are read at once */

static const char *prefixes[MAX_PREFIXES];
static unsigned prefix_count;

/* ---- what the bytes say ---- */

/* A prefix, as its two files are now. */
struct plain {
	uint8_t *idx, *bin;
	size_t idx_len, bin_len;
	uint64_t sequences, entries;
	unsigned size; /* of a token, bytes; 0: these are not the bytes of an .idx */
	bool modes;
};

static uint8_t *slurp(const char *prefix, const char *suffix, size_t *ret_len)
{
	char path[600];
	struct stat st;
	uint8_t *bytes;
	int fd;

	snprintf(path, sizeof(path), "%s%s", prefix, suffix);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st))
		die(path);
	bytes = malloc((size_t)st.st_size + 1);
	if (!bytes || read(fd, bytes, (size_t)st.st_size) != st.st_size)
		die(path);
	close(fd);
	*ret_len = (size_t)st.st_size;
	return bytes;
}

static void parse(struct plain *p)
{
	static const unsigned sizes[] = {0, 1, 1, 2, 4, 8, 8, 4, 2};
	uint64_t size;

	if (p->idx_len < 34 || memcmp(p->idx, "MMIDIDX\0\0\1\0\0\0\0\0\0\0", 17) ||
	    p->idx[17] >= MFS_ARRAY_SIZE(sizes))
		return;
	p->sequences = mfs_le64(p->idx + 18);
	p->entries = mfs_le64(p->idx + 26);
	if (p->sequences > p->idx_len || p->entries > p->idx_len)
		return;
	size = 34 + 12 * p->sequences + 8 * p->entries;
	p->modes = p->idx_len == size + p->sequences && p->sequences;
	if (p->idx_len == size || p->modes)
		p->size = sizes[p->idx[17]];
}

static struct plain load(const char *prefix)
{
	struct plain p = {0};

	p.idx = slurp(prefix, ".idx", &p.idx_len);
	p.bin = slurp(prefix, ".bin", &p.bin_len);
	parse(&p);
	return p;
}

static void unload(struct plain *p)
{
	free(p->idx);
	free(p->bin);
}

static int64_t length_of(const struct plain *p, uint64_t i)
{
	return (int32_t)mfs_le32(p->idx + 34 + 4 * i);
}

static int64_t pointer_of(const struct plain *p, uint64_t i)
{
	return (int64_t)mfs_le64(p->idx + 34 + 4 * p->sequences + 8 * i);
}

static int64_t entry_of(const struct plain *p, uint64_t i)
{
	return (int64_t)mfs_le64(p->idx + 34 + 12 * p->sequences + 8 * i);
}

/* ---- what is read ---- */

static uint64_t digest, digest_before; /* of all that was read; of the same, undamaged */

static void digest_add(const void *bytes, size_t len)
{
	const uint8_t *b = bytes;

	for (size_t i = 0; i < len; i++)
		digest = (digest ^ b[i]) * 0x100000001b3ull;
}

#define wrong(...) (snprintf(outcome->text, sizeof(outcome->text), __VA_ARGS__), 1)

struct reading {
	const struct mfs_indexed_dataset *d;
	const struct mfs_rows *rows;
	size_t bad; /* ranges of rows->bad that have been passed */
};

static bool known_as_bad(struct reading *r, uint64_t row)
{
	while (r->bad < r->rows->bad.count && r->rows->bad.list[r->bad].end <= row)
		r->bad++;
	return r->bad < r->rows->bad.count && r->rows->bad.list[r->bad].first <= row;
}

/* Checks the run of a file that is reported to hold the row's first tokens. */
static int check_extent(const struct reading *r, const struct plain *p, uint64_t row,
			uint64_t start, uint64_t length, const uint8_t *want)
{
	struct mfs_error err = {0};
	struct mfs_bin_extent x;
	uint8_t bytes[64];
	int rc = mfs_rows_extent(r->rows, start, length, &x, &err);

	if (rc || !x.len || x.len % p->size || x.len > length * p->size)
		return wrong("row %llu: no extent (%d), or one of a strange length",
			     (unsigned long long)row, rc);
	rc = mfs_fileset_read(x.set, x.file, x.offset, bytes, mfs_min_u64(x.len, sizeof(bytes)),
			      &err);
	if (rc || memcmp(bytes, want, mfs_min_u64(x.len, sizeof(bytes))))
		return wrong("row %llu: its extent holds other bytes", (unsigned long long)row);
	return 0;
}

/* want: the row's bytes, of which have are there; a row that is longer cannot be read. */
static int check_tokens(const struct reading *r, const struct plain *p, uint64_t row,
			uint64_t start, uint64_t length, const uint8_t *want, uint64_t have)
{
	static uint8_t buffer[8 * PIECE];
	struct mfs_error err = {0};

	for (uint64_t at = 0, n; at < length; at += n) {
		int rc;

		n = mfs_min_u64(PIECE, length - at);
		rc = mfs_rows_read(r->rows, start + at, n, buffer, &err);
		if (rc && at + n > have)
			return bad_error(&err, rc)
				       ? 1
				       : (rc != -EIO ? wrong("row %llu: %s",
							     (unsigned long long)row, err.msg)
						     : 0);
		if (rc)
			return wrong("row %llu is there: %s", (unsigned long long)row, err.msg);
		if (at + n > have || memcmp(buffer, want + at * p->size, n * p->size))
			return wrong("row %llu: other bytes than the file's",
				     (unsigned long long)row);
		digest_add(buffer, n * p->size);
	}
	return 0;
}

/* Row i of a prefix, which is row first + i of all. */
static int check_row(struct reading *r, const struct plain *p, uint64_t first, uint64_t i,
		     int64_t pointer, uint64_t start)
{
	const int64_t length = length_of(p, i);
	const uint64_t bytes = (uint64_t)length * p->size;
	const bool inside =
		!length || (pointer >= 0 && mfs_range_ok((uint64_t)pointer, bytes, p->bin_len));
	const bool reachable = pointer >= 0 && (uint64_t)pointer <= p->bin_len;
	const uint64_t have = reachable ? (p->bin_len - (uint64_t)pointer) / p->size : 0;
	const uint8_t *want = p->bin + (reachable ? pointer : 0);
	uint64_t found[2];
	struct mfs_error err = {0};
	int rc = mfs_rows_starts(r->rows, first + i, 2, found, &err);

	if (length < 0)
		return wrong("row %llu has a negative length", (unsigned long long)(first + i));
	if (rc || found[0] != start || found[1] - start != (uint64_t)length)
		return wrong("row %llu begins elsewhere (%d)", (unsigned long long)(first + i), rc);
	/* Rows without tokens between others that are outside may count as such. */
	if (length && inside == known_as_bad(r, first + i))
		return wrong("row %llu lies %s, and that is not known",
			     (unsigned long long)(first + i), inside ? "inside" : "outside");
	digest_add(&length, sizeof(length));
	rc = check_tokens(r, p, first + i, start, (uint64_t)length, want,
			  mfs_min_u64(have, (uint64_t)length));
	if (!rc && length && inside)
		rc = check_extent(r, p, first + i, start, (uint64_t)length, want);
	return rc;
}

static int check_mode(const struct reading *r, const struct plain *p, uint64_t first, uint64_t i)
{
	const uint8_t want = p->idx[34 + 12 * p->sequences + 8 * p->entries + i];
	struct mfs_error err = {0};
	uint8_t mode;

	if (mfs_rows_column(r->rows, 0, first + i, 1, &mode, &err) || mode != want)
		return wrong("row %llu: another mode", (unsigned long long)(first + i));
	digest_add(&mode, 1);
	return 0;
}

/* Pointers that have overflowed may have been computed again, if the lengths fill the .bin. */
static bool may_be_repaired(const struct reading *r, const struct plain *p)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; i < p->sequences; i++)
		sum += (uint64_t)length_of(p, i);
	return mfs_indexed_dataset_info(r->d)->pointers == MFS_POINTERS_REPAIRED &&
	       sum * p->size == p->bin_len;
}

static int check_prefix(struct reading *r, const struct plain *p, uint64_t first, uint64_t *start)
{
	const bool repaired = may_be_repaired(r, p);
	uint64_t sum = 0;
	int rc = 0;

	for (uint64_t i = 0; i < p->sequences && !rc; i++) {
		const int64_t pointer = repaired ? (int64_t)sum : pointer_of(p, i);

		rc = check_row(r, p, first, i, pointer, *start);
		if (!rc && p->modes)
			rc = check_mode(r, p, first, i);
		sum += (uint64_t)length_of(p, i) * p->size;
		*start += (uint64_t)length_of(p, i);
	}
	return rc;
}

static int check_all(struct reading *r, const struct plain *plain)
{
	uint64_t first = 0, start = 0;
	int rc = 0;

	for (unsigned k = 0; k < prefix_count && !rc; k++) {
		rc = check_prefix(r, &plain[k], first, &start);
		first += plain[k].sequences;
	}
	if (!rc && (r->rows->rows != first || r->rows->tokens != start))
		rc = wrong("%llu rows, %llu tokens", (unsigned long long)r->rows->rows,
			   (unsigned long long)r->rows->tokens);
	return rc;
}

/* Of one prefix: the array of documents as it stands there, and whether validate() sees what is
 * wrong with it. */
static int check_documents(const struct mfs_indexed_dataset *d, const struct plain *p)
{
	struct mfs_indexed_report report;
	struct mfs_error err = {0};
	bool sound = true;
	int64_t before = 0;
	int rc = 0;

	for (uint64_t i = 0; i < p->entries; i++) {
		const int64_t want = entry_of(p, i);
		int64_t entry;

		if (mfs_indexed_dataset_documents(d, i, 1, &entry, &err) || entry != want)
			return wrong("document entry %llu is another", (unsigned long long)i);
		sound = sound && want >= before && want <= (int64_t)p->sequences;
		before = want;
		digest_add(&entry, sizeof(entry));
	}
	rc = mfs_indexed_dataset_validate(d, &report, &err);
	if (rc && bad_error(&err, rc))
		return 1;
	if (!rc != (sound && !report.outside && !report.jumps) || !report.bad_documents != sound)
		return wrong("documents are %s, and validate() does not say so",
			     sound ? "sound" : "damaged");
	return 0;
}

static int check_dataset(const struct mfs_indexed_dataset *d, const struct plain *plain,
			 struct mfs_error *err)
{
	struct mfs_rows *rows;
	struct reading r = {.d = d};
	int rc;

	for (unsigned k = 0; k < prefix_count; k++)
		if (!plain[k].size)
			return wrong("'%s.idx' is none, and was opened", prefixes[k]);
	rc = mfs_rows_indexed(d, &rows, err);
	if (rc)
		return rc;
	r.rows = rows;
	rc = check_all(&r, plain);
	if (!rc && prefix_count == 1)
		rc = check_documents(d, plain);
	mfs_rows_free(rows);
	return rc;
}

static int read_indexed(const struct trial *t, bool *ret_shows, struct mfs_error *err)
{
	struct plain plain[MAX_PREFIXES];
	struct mfs_indexed_dataset *d;
	int rc;

	digest = 0xcbf29ce484222325ull;
	for (unsigned k = 0; k < prefix_count; k++)
		plain[k] = load(prefixes[k]);
	rc = mfs_indexed_dataset_open(prefixes, prefix_count, &d, err);
	if (!rc) {
		rc = check_dataset(d, plain, err);
		mfs_indexed_dataset_free(d);
	}
	for (unsigned k = 0; k < prefix_count; k++)
		unload(&plain[k]);
	if (!t)
		digest_before = digest;
	*ret_shows = digest != digest_before;
	return rc;
}

/* ---- datasets ---- */

static void add_prefix(const char *from, const char *name)
{
	char path[600], file[128], *copy;

	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s%s", from, i ? ".bin" : ".idx");
		snprintf(file, sizeof(file), "/%s%s", name, i ? ".bin" : ".idx");
		copy_file(path, file);
	}
	if (prefix_count == MAX_PREFIXES || asprintf(&copy, "%s/%s", copy_dir, name) < 0)
		die(name);
	prefixes[prefix_count++] = copy;
}

static void must(int rc, const struct mfs_error *err)
{
	if (!rc)
		return;
	fprintf(stderr, "damage_data: %s\n", err->msg);
	exit(EXIT_FAILURE);
}

/* 150 documents of no, one or two sequences, some of them empty. */
static void write_dataset(const char *prefix, bool multimodal)
{
	const struct mfs_indexed_writer_config c = {.dtype = MFS_I32, .multimodal = multimodal};
	struct mfs_indexed_writer *w;
	struct mfs_error err;

	must(mfs_indexed_writer_open(prefix, &c, &w, &err), &err);
	for (int i = 0; i < 150; i++) {
		for (int s = 0; s < i % 3; s++) {
			for (int64_t k = 0; k < i * 7 % 40; k++) {
				const int64_t token = i * 1000 + s * 100 + k;

				must(mfs_indexed_writer_add_tokens(w, &token, 1, &err), &err);
			}
			must(mfs_indexed_writer_end_sequence(w, (int8_t)(i % 2), &err), &err);
		}
		must(mfs_indexed_writer_end_document(w, &err), &err);
	}
	must(mfs_indexed_writer_finish(w, &err), &err);
}

/* Every third pointer is that of the sequence before it; or all of the second half have wrapped at
 * 32 bits. */
static void change_pointers(struct source_file *idx, bool gaps)
{
	const uint64_t n = mfs_le64(idx->bytes + 18);
	uint8_t *pointers = idx->bytes + 34 + 4 * n;

	for (uint64_t i = 1; i < n; i++) {
		if (gaps && i % 3 == 0)
			memcpy(pointers + 8 * i, pointers + 8 * (i - 1), 8);
		if (!gaps && i >= n / 2)
			mfs_put_le64(pointers + 8 * i, mfs_le64(pointers + 8 * i) - (1ull << 32));
	}
	restore(idx);
}

static bool make_dataset(const char *kind)
{
	char prefix[300];
	const bool gaps = !strcmp(kind, "gaps"), overflowed = !strcmp(kind, "overflowed");

	if (!gaps && !overflowed && strcmp(kind, "multimodal"))
		return false;
	snprintf(prefix, sizeof(prefix), "%s/made", copy_dir);
	write_dataset(prefix, !gaps && !overflowed);
	add_prefix(prefix, "made");
	if (gaps || overflowed)
		change_pointers(&sources[0], gaps);
	return true;
}

int main(int argc, char **argv)
{
	if (argc < 3) {
		fprintf(stderr,
			"usage: damage_data CHANGES PREFIX... | multimodal | gaps | overflowed\n");
		return EXIT_FAILURE;
	}
	make_copy_dir();
	for (int i = 2; i < argc; i++) {
		const char *slash = strrchr(argv[i], '/');

		if (!make_dataset(argv[i]))
			add_prefix(argv[i], slash ? slash + 1 : argv[i]);
	}
	return run_damage(argv[argc - 1], (unsigned)atoi(argv[1]), read_indexed);
}
