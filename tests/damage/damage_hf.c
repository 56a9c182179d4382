/*
 * damage_hf DIR CHANGES [SPLIT]: damage (trials.h) to a dataset of HuggingFace `datasets`, which is
 * read row by row.
 *
 * What is right is read from the damaged bytes here, by another small reader of Arrow streams
 * (Columnar.rst; Message.fbs, Schema.fbs), which does without all checks that only serve to refuse.
 */
#define _GNU_SOURCE
#include "tests/damage/trials.h"

#include <dirent.h>
#include <jansson.h>

#include "formats/base/bytes.h"
#include "formats/dataset/rows/hf_dataset.h"

#define wrong(...) (snprintf(outcome->text, sizeof(outcome->text), __VA_ARGS__), 1)

static const char *split;

/* ---- flatbuffers ---- */

struct flat {
	const uint8_t *bytes;
	uint64_t len;
	bool bad;
};

static uint64_t load(struct flat *f, uint64_t at, unsigned size)
{
	uint64_t v = 0;

	if (!mfs_range_ok(at, size, f->len)) {
		f->bad = true;
		return 0;
	}
	memcpy(&v, f->bytes + at, size);
	return v;
}

/* Where a table's field is; 0: it has none. */
static uint64_t field(struct flat *f, uint64_t table, unsigned i)
{
	const uint64_t vtable = table - (uint64_t)(int64_t)(int32_t)load(f, table, 4);
	const uint64_t size = table ? load(f, vtable, 2) : 0;
	const uint64_t at = 6 + 2 * i <= size ? load(f, vtable + 4 + 2 * i, 2) : 0;

	return at ? table + at : 0;
}

static uint64_t scalar(struct flat *f, uint64_t table, unsigned i, unsigned size)
{
	const uint64_t at = field(f, table, i);

	return at ? load(f, at, size) : 0;
}

/* A field that points somewhere: a table, a vector, a string. */
static uint64_t pointed(struct flat *f, uint64_t table, unsigned i)
{
	const uint64_t at = field(f, table, i);

	return at ? at + load(f, at, 4) : 0;
}

/* ---- Arrow ---- */

enum { INT = 2, LIST = 12, STRUCT = 13, FIXED_SIZE_LIST = 16, LARGE_LIST = 21 };

struct column {
	unsigned type, bits;
	bool is_signed, is_int, is_list;
	uint32_t size; /* of a fixed-size list */
	unsigned node, buffer;
};

static unsigned buffers_of(unsigned type)
{
	switch (type) {
	case 1:
		return 0;
	case STRUCT:
	case FIXED_SIZE_LIST:
		return 1;
	case 4:
	case 5:
	case 19:
	case 20:
		return 3;
	default:
		return 2;
	}
}

/* Only of types that have some do children count: list, struct, union, fixed-size list, map, large
 * list, run-end encoded, and the two views of lists. */
static bool has_children(unsigned type)
{
	return type >= LIST && type < 32 && 0x6637000u >> type & 1;
}

/* Of a field and its children: what it is, and how many nodes and buffers it takes. */
static struct column read_field(struct flat *f, uint64_t table, unsigned depth, unsigned *nodes,
				unsigned *buffers)
{
	struct column c = {
		.type = (unsigned)scalar(f, table, 2, 1), .node = *nodes, .buffer = *buffers};
	const uint64_t type = pointed(f, table, 3);
	const uint64_t children = has_children(c.type) ? pointed(f, table, 5) : 0;
	const uint64_t count = children ? load(f, children, 4) : 0;

	c.size = c.type == FIXED_SIZE_LIST ? (uint32_t)scalar(f, type, 0, 4) : 0;
	c.is_int = c.type == INT && !field(f, table, 4);
	c.bits = c.is_int ? (unsigned)scalar(f, type, 0, 4) : 0;
	c.is_signed = c.is_int && scalar(f, type, 1, 1);
	*nodes += 1;
	*buffers += buffers_of(c.type);
	for (uint64_t i = 0; i < count && !f->bad && depth < 64; i++) {
		const uint64_t at = children + 4 + 4 * i;
		const struct column item =
			read_field(f, at + load(f, at, 4), depth + 1, nodes, buffers);

		if (c.type != LIST && c.type != LARGE_LIST && c.type != FIXED_SIZE_LIST)
			continue;
		c.is_list = item.is_int && !field(f, table, 4);
		c.bits = item.bits;
		c.is_signed = item.is_signed;
	}
	return c;
}

static bool is_named(struct flat *f, uint64_t table, const char *name)
{
	const uint64_t text = pointed(f, table, 0), len = text ? load(f, text, 4) : 0;

	/* A name ends at its first NUL, as it does in C. */
	return mfs_range_ok(text + 4, len, f->len) &&
	       strnlen((const char *)f->bytes + text + 4, len) == strlen(name) &&
	       !memcmp(f->bytes + text + 4, name, strlen(name));
}

/* The column called name; or input_ids; or the only one that may be it. False: there is none. */
static bool find_column(struct flat *f, uint64_t schema, const char *name, struct column *ret)
{
	const uint64_t fields = pointed(f, schema, 1), count = fields ? load(f, fields, 4) : 0;
	unsigned nodes = 0, buffers = 0, found = 0;

	for (uint64_t i = 0; i < count && !f->bad; i++) {
		const uint64_t at = fields + 4 + 4 * i, table = at + load(f, at, 4);
		const struct column c = read_field(f, table, 0, &nodes, &buffers);

		if (is_named(f, table, name ? name : "input_ids")) {
			*ret = c;
			return true;
		}
		if (!name && c.is_list) {
			*ret = c;
			found++;
		}
	}
	return !f->bad && found == 1;
}

/* Rows of one file after the other. */
struct table {
	int64_t *tokens;
	uint64_t token_count, token_room;
	struct row {
		uint64_t first, count;
		bool bad; /* one of its tokens is none, or it leads out of all of them */
	} * rows;
	uint64_t row_count, row_room;
};

static void *grown(void *array, uint64_t count, uint64_t *room, size_t size)
{
	if (count < *room)
		return array;
	*room = *room ? 2 * *room : 256;
	array = reallocarray(array, *room, size);
	if (!array)
		die("oracle");
	return array;
}

static void add_row(struct table *t)
{
	t->rows = grown(t->rows, t->row_count, &t->row_room, sizeof(*t->rows));
	t->rows[t->row_count++] = (struct row){.first = t->token_count};
}

static void add_token(struct table *t, uint64_t raw, const struct column *c)
{
	const unsigned unused = 64 - c->bits;
	struct row *row = &t->rows[t->row_count - 1];

	t->tokens = grown(t->tokens, t->token_count, &t->token_room, sizeof(*t->tokens));
	if (c->is_signed)
		t->tokens[t->token_count++] = (int64_t)(raw << unused) >> unused;
	else
		t->tokens[t->token_count++] = (int64_t)raw;
	/* Shown as the signed type of this width. */
	row->bad |= !c->is_signed && c->bits >= 32 && raw >> (c->bits - 1);
	row->count++;
}

/* The buffers of a column in one batch, and its counts. */
struct batch {
	struct flat body;
	uint64_t rows, nulls, items, item_nulls;
	uint64_t validity, offsets, item_validity, values; /* in the body */
};

static bool is_null(struct batch *b, uint64_t validity, uint64_t nulls, uint64_t i)
{
	return nulls && !(load(&b->body, validity + i / 8, 1) >> i % 8 & 1);
}

static void take_row(struct batch *b, const struct column *c, uint64_t i, struct table *t)
{
	const unsigned size = c->type == LARGE_LIST ? 8 : 4;
	uint64_t from = i * c->size, to = from + c->size;

	if (c->type == LIST || c->type == LARGE_LIST) {
		from = load(&b->body, b->offsets + i * size, size);
		to = load(&b->body, b->offsets + (i + 1) * size, size);
	}
	add_row(t);
	if (c->is_int) {
		add_token(t, load(&b->body, b->values + i * c->bits / 8, c->bits / 8), c);
		return;
	}
	if (is_null(b, b->validity, b->nulls, i))
		return;
	if (from > to || to > b->items) {
		t->rows[t->row_count - 1].bad = true;
		return;
	}
	for (; from < to && !b->body.bad; from++) {
		b->body.bad |= is_null(b, b->item_validity, b->item_nulls, from);
		add_token(t, load(&b->body, b->values + from * c->bits / 8, c->bits / 8), c);
	}
}

/* A record batch: false if it is none by the format. */
static bool take_batch(struct flat *f, uint64_t header, struct flat body, const struct column *c,
		       struct table *t)
{
	const uint64_t nodes = pointed(f, header, 1) + 4 + 16 * c->node;
	const uint64_t buffers = pointed(f, header, 2) + 4 + 16 * c->buffer;
	const unsigned skip = c->type == LIST || c->type == LARGE_LIST ? 2 : c->is_int ? 0 : 1;
	struct batch b = {
		.body = body,
		.rows = load(f, nodes, 8),
		.nulls = load(f, nodes + 8, 8),
		.validity = load(f, buffers, 8),
		.offsets = load(f, buffers + 16, 8),
		.item_validity = load(f, buffers + 16 * skip, 8),
		.values = load(f, buffers + 16 * (skip + 1), 8),
	};

	if (!c->is_int) {
		b.items = load(f, nodes + 16, 8);
		b.item_nulls = load(f, nodes + 24, 8);
	}
	if (f->bad || field(f, header, 3) || b.rows != scalar(f, header, 0, 8))
		return false;
	for (uint64_t i = 0; i < b.rows && !b.body.bad; i++)
		take_row(&b, c, i, t);
	return !b.body.bad;
}

/* Adds the rows of a stream; false if it is none. name NULL: the column of token ids. */
static bool take_stream(const uint8_t *bytes, uint64_t len, const char *name, struct table *t)
{
	struct flat file = {.bytes = bytes, .len = len};
	struct column c = {0};
	bool schema = false;
	uint64_t at = 0;

	for (;;) {
		uint64_t size = load(&file, at, 4), body_len, root, type;
		struct flat f, body;

		at += 4;
		if (size == 0xffffffff) {
			size = load(&file, at, 4);
			at += 4;
		}
		if (file.bad || !size)
			return !file.bad && schema;
		f = (struct flat){.bytes = bytes + at, .len = size};
		if (!mfs_range_ok(at, size, len))
			return false;
		root = load(&f, 0, 4);
		type = scalar(&f, root, 1, 1);
		body_len = scalar(&f, root, 3, 8);
		at += size;
		if (f.bad || !mfs_range_ok(at, body_len, len))
			return false;
		body = (struct flat){.bytes = bytes + at, .len = body_len};
		at += body_len;
		if (type == 1 && !schema)
			schema = find_column(&f, pointed(&f, root, 2), name, &c);
		else if (type != 3 || !schema || !take_batch(&f, pointed(&f, root, 2), body, &c, t))
			return false;
		if (!schema || c.bits % 8 || !c.bits || c.bits > 64 ||
		    !(name ? c.is_int : c.is_list))
			return false;
	}
}

/* ---- datasets ---- */

static const struct source_file *source_called(const char *dir, const char *name)
{
	char path[600];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	for (unsigned i = 0; i < source_count; i++)
		if (!strcmp(sources[i].path, path))
			return &sources[i];
	return NULL;
}

static bool take_file(const char *dir, const char *name, const char *column, struct table *t)
{
	const struct source_file *f = name ? source_called(dir, name) : NULL;
	uint8_t *bytes;
	ssize_t n;
	int fd;
	bool ok;

	if (!f)
		return false;
	fd = open(f->path, O_RDONLY | O_CLOEXEC);
	bytes = malloc(f->len + 1);
	n = fd < 0 || !bytes ? -1 : read(fd, bytes, f->len + 1);
	if (n < 0)
		die(f->path);
	close(fd);
	ok = take_stream(bytes, (uint64_t)n, column, t);
	free(bytes);
	return ok;
}

static bool take_list(const char *dir, const json_t *list, const char *column, struct table *t)
{
	bool ok = true;

	for (size_t i = 0; i < json_array_size(list) && ok; i++)
		ok = take_file(
			dir,
			json_string_value(json_object_get(json_array_get(list, i), "filename")),
			column, t);
	return ok;
}

static bool permute(struct table *t, const struct table *order)
{
	struct row *rows = calloc(order->row_count + 1, sizeof(*rows));

	if (!rows)
		die("oracle");
	for (uint64_t i = 0; i < order->row_count; i++) {
		const uint64_t k = (uint64_t)order->tokens[i];

		if (k >= t->row_count) {
			free(rows);
			return false;
		}
		rows[i] = t->rows[k];
	}
	free(t->rows);
	t->rows = rows;
	t->row_count = t->row_room = order->row_count;
	return true;
}

static void release(struct table *t)
{
	free(t->tokens);
	free(t->rows);
}

/* What save_to_disk wrote, by its state.json. */
static bool take_saved(const char *dir, json_t *state, struct table *t)
{
	const json_t *indices = json_object_get(state, "_indices_data_files");
	struct table order = {0};
	bool ok = take_list(dir, json_object_get(state, "_data_files"), NULL, t);

	if (ok && json_array_size(indices))
		ok = take_list(dir, indices, "indices", &order) && permute(t, &order);
	release(&order);
	return ok;
}

static int is_arrow(const struct dirent *e)
{
	return strstr(e->d_name, ".arrow") != NULL;
}

static bool take_directory(const char *dir, struct table *t)
{
	struct dirent **entries;
	int n = scandir(dir, &entries, is_arrow, alphasort);
	bool ok = n > 0;

	for (int i = 0; i < n; i++) {
		ok = ok && take_file(dir, entries[i]->d_name, NULL, t);
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
	return ok;
}

static bool take_dataset(struct table *t)
{
	char dir[512], path[600];
	json_t *state;
	bool ok;

	snprintf(dir, sizeof(dir), "%s/%s", copy_dir, split ? split : "");
	dir[strlen(dir) - !split] = '\0';
	if (access(dir, F_OK)) /* a split of a cache is no directory */
		return take_directory(copy_dir, t);
	snprintf(path, sizeof(path), "%s/state.json", dir);
	state = json_load_file(path, 0, NULL);
	ok = state && take_saved(dir, state, t);
	json_decref(state);
	return ok;
}

/* ---- ours against it ---- */

static uint64_t digest, digest_before; /* of all that was read; of the same, undamaged */

static void digest_add(uint64_t value)
{
	digest = (digest ^ value) * 0x100000001b3ull;
}

static int check_row(const struct mfs_rows *rows, const struct table *t, uint64_t i)
{
	const struct row *want = &t->rows[i];
	/* Neighbours share an offset. */
	const bool next_to_bad =
		want->bad || (i && want[-1].bad) || (i + 1 < t->row_count && want[1].bad);
	int64_t *tokens = malloc((want->count + 1) * sizeof(*tokens));
	struct mfs_error err = {0};
	uint64_t starts[2];
	int rc = mfs_rows_starts(rows, i, 2, starts, &err);

	if (!tokens)
		die("oracle");
	if (rc && next_to_bad) {
		free(tokens);
		return bad_error(&err, rc);
	}
	if (rc || (starts[1] - starts[0] != want->count && !want->bad)) {
		free(tokens);
		return wrong("row %llu has %llu tokens, not %llu (%d)", (unsigned long long)i,
			     (unsigned long long)(starts[1] - starts[0]),
			     (unsigned long long)want->count, rc);
	}
	rc = mfs_rows_read_int64(rows, starts[0], want->count, tokens, &err);
	if (rc && next_to_bad)
		rc = bad_error(&err, rc);
	else if (rc)
		rc = wrong("row %llu: %s", (unsigned long long)i, err.msg);
	else if (want->bad || memcmp(tokens, t->tokens + want->first, want->count * 8))
		rc = wrong("row %llu: other tokens than the file's", (unsigned long long)i);
	digest_add(want->count);
	for (uint64_t k = 0; k < want->count; k++)
		digest_add((uint64_t)t->tokens[want->first + k]);
	free(tokens);
	return rc;
}

static int check_rows(const struct mfs_rows *rows)
{
	struct table t = {0};
	int rc = 0;

	if (!take_dataset(&t))
		rc = wrong("it was read, and is damaged");
	else if (t.row_count != rows->rows)
		rc = wrong("%llu rows, not %llu", (unsigned long long)rows->rows,
			   (unsigned long long)t.row_count);
	for (uint64_t i = 0; i < t.row_count && !rc; i++)
		rc = check_row(rows, &t, i);
	release(&t);
	return rc;
}

static int read_dataset(const struct trial *trial, bool *ret_shows, struct mfs_error *err)
{
	struct mfs_rows *rows;
	int rc = mfs_hf_dataset_open(copy_dir, split, NULL, &rows, err);

	digest = 0xcbf29ce484222325ull;
	if (rc)
		return rc;
	rc = check_rows(rows);
	if (!trial && !rc && !rows->tokens)
		rc = wrong("it has no tokens");
	mfs_rows_free(rows);
	if (!trial)
		digest_before = digest;
	*ret_shows = digest != digest_before;
	return rc;
}

int main(int argc, char **argv)
{
	if (argc != 3 && argc != 4) {
		fprintf(stderr, "usage: damage_hf DIR CHANGES [SPLIT]\n");
		return EXIT_FAILURE;
	}
	split = argc == 4 ? argv[3] : NULL;
	make_copy_dir();
	copy_tree(argv[1]);
	return run_damage(argv[1], (unsigned)atoi(argv[2]), read_dataset);
}
