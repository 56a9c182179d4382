/* Writing torch.save archives: formats/torch/torch_write.h. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "formats/torch/pickle_write.h"
#include "formats/torch/torch_file.h"
#include "formats/torch/torch_write.h"

#define GIB (UINT64_C(1) << 30)

static struct mfs_error err;
static struct mfs_torch_archive archive;
static struct mfs_torch_items *items;
static struct mfs_torch_file f;

static void teardown(void)
{
	mfs_torch_file_release(&f);
	mfs_torch_archive_release(&archive);
	mfs_torch_items_free(items);
	items = NULL;
}

/* ---- an archive as a source: payloads read as zeros ---- */

static int read_archive(const struct mfs_source *s, uint64_t off, void *buf, size_t len,
			struct mfs_error *e)
{
	const struct mfs_torch_archive *a = s->object;
	uint64_t at = 0;

	(void)e;
	memset(buf, 0, len);
	for (uint32_t i = 0; i < a->count; i++) {
		const struct mfs_torch_segment *g = &a->segments[i];
		const uint64_t from = mfs_max_u64(off, at);
		const uint64_t to = mfs_min_u64(off + len, at + g->length);

		if (from < to && g->payload == MFS_TORCH_LITERAL)
			memcpy((char *)buf + (from - off),
			       a->literals.data + g->offset + (from - at), to - from);
		at += g->length;
	}
	return 0;
}

static struct mfs_source archive_source(void)
{
	static const struct mfs_source_ops ops = {.read = read_archive};

	return (struct mfs_source){
		.ops = &ops, .name = "written.pt", .size = archive.size, .object = &archive};
}

static void open_archive(void)
{
	struct mfs_source src = archive_source();

	unit_ok(mfs_torch_file_open(&src, &f, &err), &err);
}

static const struct mfs_zip_entry *entry(const char *name)
{
	const struct mfs_zip_entry *e = mfs_zip_find(&f.zip, name);

	ck_assert_msg(e != NULL, "no record %s", name);
	return e;
}

static uint64_t located(const char *name)
{
	struct mfs_source src = archive_source();
	uint64_t at;

	unit_ok(mfs_zip_locate(&src, entry(name), &at, &err), &err);
	return at;
}

/* ---- against real files ---- */

static const char *const fixtures[] = {
	"resume/llama-torch-tp2-pp2/iter_0000020/mp_rank_00_000/model_optim_rng.pt",
	"resume/qwen2-torch-tp2-dp2-distopt/iter_0000020/mp_rank_00/distrib_optim.pt",
	"weights/gpt2-torch-tp2-pp2/iter_0000040/mp_rank_01_001/model_optim_rng.pt",
	"weights/mixtral-torch-pp2-ep2/iter_0000040/mp_rank_00_001_001/model_optim_rng.pt",
};

static const void *record(const struct mfs_torch_file *real, const uint8_t *bytes, const char *name,
			  uint64_t *ret_size)
{
	const struct mfs_zip_entry *e = mfs_zip_find(&real->zip, name);
	uint64_t at;

	ck_assert_msg(e != NULL, "no record %s", name);
	unit_ok(mfs_zip_locate(&real->zip.src, e, &at, &err), &err);
	*ret_size = e->size;
	return bytes + at;
}

/* The 40 digits, and their CRC-32 in the descriptor and in the directory, whose last entry they
 * have. */
static void blank_id(uint8_t *file, uint64_t size, const char *prefix)
{
	uint8_t *end = file + size - 22 - 20 - 56;
	uint8_t *name = memmem(file, size, ".data/serialization_id", 22) - strlen(prefix) - 1;
	uint8_t *id = name + strlen(prefix) + 23 + mfs_le16(name - 2);

	memset(id, '0', 40);
	memset(id + 44, 0, 4);
	memset(end - strlen(prefix) - 23 - 46 + 16, 0, 4);
}

/* From its own data.pkl and storages a real file must come out again, but for the id. */
START_TEST(real_file_to_the_byte)
{
	struct mfs_torch_payload payloads[256];
	struct mfs_buf out = {0};
	struct mfs_source src;
	struct mfs_torch_file real;
	uint64_t pickle_len;
	const void *pickle;
	char prefix[32], name[64];
	uint32_t count;
	uint8_t *bytes;
	size_t len;

	bytes = unit_slurp(unit_fixture(fixtures[_i]), &len);
	src = mfs_source_memory(bytes, len, "real.pt");
	unit_ok(mfs_torch_file_open(&src, &real, &err), &err);
	snprintf(prefix, sizeof prefix, "%.*s", (int)strcspn(real.zip.entries[0].name, "/"),
		 real.zip.entries[0].name);
	count = real.zip.count - 6;
	for (uint32_t i = 0; i < count; i++) {
		snprintf(name, sizeof name, "%s/data/%u", prefix, i);
		payloads[i].bytes = record(&real, bytes, name, &payloads[i].size);
	}
	snprintf(name, sizeof name, "%s/data.pkl", prefix);
	pickle = record(&real, bytes, name, &pickle_len);
	unit_ok(mfs_torch_save(prefix, pickle, pickle_len, payloads, count, &out, &err), &err);
	ck_assert_uint_eq(out.len, len);
	blank_id(bytes, len, prefix);
	blank_id((uint8_t *)out.data, out.len, prefix);
	ck_assert_mem_eq(out.data, bytes, len);
	mfs_buf_release(&out);
	mfs_torch_file_release(&real);
	free(bytes);
}
END_TEST

static const char pickle[] = "\x80\x02]q\0.";

static void make(size_t pickle_len, const struct mfs_torch_payload *payloads, uint32_t count)
{
	char *padded = calloc(1, pickle_len);
	size_t at = 3;

	/* A data.pkl of the length that the real file had: opcodes that do nothing. */
	memcpy(padded, pickle, at);
	if ((pickle_len - at) % 2 == 0) {
		memcpy(padded + at,
		       "\x8a\0"
		       "0",
		       3);
		at += 3;
	}
	for (; at + 1 < pickle_len; at += 2)
		memcpy(padded + at, "q\1", 2);
	padded[pickle_len - 1] = '.';
	unit_ok(mfs_torch_archive("model_optim_rng", padded, pickle_len, payloads, count, &archive,
				  &err),
		&err);
	free(padded);
}

/*
 * Sizes, and where torch 2.13 put the headers of the storages and of "version", under
 * torch.serialization.skip_data() with a list of uint8 tensors (the archives were compared to the
 * byte): a record of 5 GiB; headers beyond 4 GiB without one; sizes at the very limit; one that
 * crosses it.
 */
static const struct {
	size_t pickle_len;
	uint32_t count;
	uint64_t sizes[5], headers[5], version, total;
} large[] = {
	{303, 4, {3, 0, 5, 1000}, {726, 851, 960, 1045}, 2168, 3245},
	{268, 3, {5 * GIB, 7, GIB}, {726, 5368709976, 5368710111}, 6442452056, 6442453173},
	{272, 3, {3 * GIB, 2 * GIB, 9}, {726, 3221226320, 5368710096}, 5368710241, 5368711317},
	{213, 2, {4 * GIB - 1, 5}, {662, 4294968087}, 4294968221, 4294969253},
	{213, 2, {4 * GIB - 2, 5}, {662, 4294968078}, 4294968221, 4294969233},
	{370,
	 5,
	 {4 * GIB - 800, 5, 0, 5 * GIB, 1},
	 {854, 4294967472, 4294967581, 4294967680, 9663676952},
	 9663677081,
	 9663678353},
	{213, 2, {4 * GIB - 721, 1}, {662, 4294967359}, 4294967513, 4294968529},
	{213, 2, {4 * GIB - 785, 1}, {662, 4294967295}, 4294967449, 4294968465},
	{213, 2, {4 * GIB - 786, 1}, {662, 4294967294}, 4294967377, 4294968389},
};

START_TEST(large_archives_have_zip64_records)
{
	struct mfs_torch_payload payloads[5] = {0};
	char name[64];

	for (uint32_t i = 0; i < large[_i].count; i++)
		payloads[i].size = large[_i].sizes[i];
	make(large[_i].pickle_len, payloads, large[_i].count);
	ck_assert_uint_eq(archive.size, large[_i].total);
	ck_assert_uint_lt(archive.literals.len, 8192);
	open_archive();
	ck_assert_uint_eq(f.zip.count, large[_i].count + 6);
	for (uint32_t i = 0; i < large[_i].count; i++) {
		snprintf(name, sizeof name, "model_optim_rng/data/%u", i);
		ck_assert_uint_eq(entry(name)->size, large[_i].sizes[i]);
		ck_assert_uint_eq(entry(name)->header, large[_i].headers[i]);
		ck_assert_uint_eq(entry(name)->crc, 0);
		ck_assert_uint_eq(located(name) % 64, 0);
	}
	ck_assert_uint_eq(entry("model_optim_rng/version")->header, large[_i].version);
	located("model_optim_rng/.data/serialization_id");
}
END_TEST

/* Segments are the file's bytes, front to back: literals and payloads take turns. */
START_TEST(segments_are_the_files_bytes_in_order)
{
	struct mfs_torch_payload payloads[3] = {
		{.size = 100}, {.size = 2, .bytes = "xy"}, {.size = 1}};
	uint64_t total = 0;
	size_t literal = 0;

	make(6, payloads, 3);
	ck_assert_uint_eq(archive.count, 5);
	ck_assert_uint_eq(archive.segments[1].payload, 0);
	ck_assert_uint_eq(archive.segments[3].payload, 2);
	for (uint32_t i = 0; i < archive.count; i++) {
		const struct mfs_torch_segment *s = &archive.segments[i];

		total += s->length;
		if (i % 2)
			continue;
		ck_assert_uint_eq(s->payload, MFS_TORCH_LITERAL);
		ck_assert_uint_eq(s->offset, literal);
		literal += s->length;
	}
	ck_assert_uint_eq(total, archive.size);
	ck_assert_uint_eq(literal, archive.literals.len);
	open_archive();
	ck_assert_uint_eq(entry("model_optim_rng/data/1")->crc, 0x8fe62899);
}
END_TEST

/* More records than 16 bits count; literals stay small. */
START_TEST(many_storages)
{
	const uint32_t count = 100000;
	struct mfs_torch_payload *payloads = calloc(count, sizeof *payloads);

	for (uint32_t i = 0; i < count; i++)
		payloads[i].size = i % 7 * 1000 * 1000;
	make(6, payloads, count);
	ck_assert_uint_lt(archive.literals.len, 24 << 20);
	/* read_archive() walks all segments for every read: the directory alone is looked at. */
	open_archive();
	ck_assert_uint_eq(f.zip.count, count + 6);
	ck_assert_uint_eq(entry("model_optim_rng/data/99999")->size, 99999 % 7 * 1000 * 1000);
	free(payloads);
}
END_TEST

START_TEST(archives_that_cannot_be_are_refused)
{
	const struct mfs_torch_payload huge[2] = {{.size = UINT64_MAX - 10}, {.size = 100}};
	struct mfs_torch_payload one = {.size = 1};
	struct mfs_buf out = {0};
	char prefix[200];

	memset(prefix, 'p', sizeof prefix);
	prefix[sizeof prefix - 1] = '\0';
	unit_fails(mfs_torch_archive(prefix, pickle, 6, NULL, 0, &archive, &err), &err, -EINVAL,
		   "directory");
	unit_fails(mfs_torch_archive("a/b", pickle, 6, NULL, 0, &archive, &err), &err, -EINVAL,
		   "directory");
	unit_fails(mfs_torch_archive("a", pickle, 0, NULL, 0, &archive, &err), &err, -EINVAL,
		   "data.pkl");
	unit_fails(mfs_torch_archive("a", pickle, 6, huge, 2, &archive, &err), &err, -EINVAL,
		   "2^63");
	unit_fails(mfs_torch_save("a", pickle, 6, &one, 1, &out, &err), &err, -EINVAL, "memory");
}
END_TEST

/* ---- items ---- */

static void make_item(enum mfs_dtype dtype, const uint64_t *shape, unsigned ndim,
		      struct mfs_torch_item *item)
{
	if (!items)
		unit_ok(mfs_torch_items_new(&items, &err), &err);
	unit_ok(mfs_torch_item(items, dtype, shape, ndim, item, &err), &err);
}

/* Our reader's view of it, with a payload of zeros. */
static struct mfs_torch_tensor item_tensor(const struct mfs_torch_item *item)
{
	size_t size = mfs_torch_item_size(item);
	char *bytes = calloc(1, size);
	struct mfs_source src = mfs_source_memory(bytes, size, "item");
	struct mfs_torch_tensor t;

	memcpy(bytes, item->head, item->head_len);
	memcpy(bytes + item->head_len + item->payload, item->tail, item->tail_len);
	unit_ok(mfs_torch_file_open(&src, &f, &err), &err);
	unit_ok(mfs_torch_tensor(&f, mfs_pickle_root(f.doc), &t, &err), &err);
	ck_assert_uint_eq(t.record->size, item->payload);
	mfs_torch_file_release(&f);
	free(bytes);
	return t;
}

/* Where torch 2.13 has it: megatron-checkpoints.md 2.1. Lengths of real items: fixtures'
 * .metadata. */
START_TEST(items_have_torchs_size)
{
	const uint64_t shape[] = {8, 16}, qwen3_fc2[] = {1, 64, 44};
	struct mfs_torch_item item, again, other;
	struct mfs_torch_tensor t;

	make_item(MFS_BF16, shape, 2, &item);
	ck_assert_uint_eq(item.head_len, 704);
	ck_assert_uint_eq(item.payload, 256);
	/* data.pkl is 14 bytes shorter than torch's, which also memoises what it never fetches;
	 * here that vanishes in the padding. */
	ck_assert_uint_eq(mfs_torch_item_size(&item), 1833);
	t = item_tensor(&item);
	ck_assert(t.dtype == MFS_BF16 && t.ndim == 2 && t.shape[1] == 16 && t.stride[0] == 16);
	make_item(MFS_BF16, shape, 2, &again);
	ck_assert(again.head == item.head && again.tail == item.tail);
	make_item(MFS_F16, shape, 2, &other);
	ck_assert(other.head != item.head && other.head_len == 704);
	make_item(MFS_BF16, shape, 1, &other);
	ck_assert(other.head != item.head && other.payload == 16);
	make_item(MFS_BF16, qwen3_fc2, 3, &other);
	ck_assert_uint_eq(mfs_torch_item_size(&other), 7209);
}
END_TEST

START_TEST(every_dtype)
{
	const uint64_t shape[] = {3, 5, 7};
	struct mfs_torch_item item;
	struct mfs_torch_tensor t;

	make_item((enum mfs_dtype)_i, shape, 3, &item);
	t = item_tensor(&item);
	ck_assert_int_eq(t.dtype, _i);
	ck_assert(t.ndim == 3 && t.shape[0] == 3 && t.stride[0] == 35 && t.stride[2] == 1);
}
END_TEST

START_TEST(odd_shapes)
{
	const uint64_t empty[] = {2, 0, 3}, most[] = {1, 2, 1, 2, 1, 2, 1, 2},
		       wide[] = {GIB * GIB, 9};
	const uint64_t huge[] = {3, GIB};
	struct mfs_torch_item item;
	struct mfs_torch_tensor t;

	make_item(MFS_F32, NULL, 0, &item);
	ck_assert_uint_eq(item.payload, 4);
	t = item_tensor(&item);
	ck_assert_uint_eq(t.ndim, 0);
	make_item(MFS_F32, empty, 3, &item);
	ck_assert(item.payload == 0 && item.tail_len == 0);
	t = item_tensor(&item);
	ck_assert(t.ndim == 3 && t.shape[1] == 0 && t.stride[0] == 3);
	make_item(MFS_F32, most, 8, &item);
	t = item_tensor(&item);
	ck_assert_uint_eq(t.stride[0], 16);
	/* ZIP64 in an item: its head is that of any other, its tail is longer. */
	make_item(MFS_F32, huge, 2, &item);
	ck_assert_uint_eq(item.payload, 12 * GIB);
	unit_fails(mfs_torch_item(items, MFS_F32, wide, 2, &item, &err), &err, -EINVAL,
		   "overflows");
	unit_fails(mfs_torch_item(items, MFS_F32, most, 9, &item, &err), &err, -EINVAL, "axes");
	unit_fails(mfs_torch_item(items, MFS_DTYPE_NONE, most, 1, &item, &err), &err, -EINVAL,
		   "type");
}
END_TEST

/* torch.save([None]), as Megatron stores a module without extra state. */
START_TEST(byte_item)
{
	struct mfs_pickle_writer w;
	struct mfs_buf bytes = {0}, out = {0};
	struct mfs_source src;
	mfs_value root;

	mfs_pickle_begin(&w, &bytes, 2);
	mfs_pickle_list_begin(&w);
	mfs_pickle_none(&w);
	mfs_pickle_list_end(&w);
	unit_ok(mfs_pickle_end(&w, &err), &err);
	unit_ok(mfs_torch_save("archive", bytes.data, bytes.len, NULL, 0, &out, &err), &err);
	src = mfs_source_memory(out.data, out.len, "item");
	unit_ok(mfs_torch_file_open(&src, &f, &err), &err);
	root = mfs_pickle_root(f.doc);
	ck_assert_uint_eq(mfs_value_count(f.doc, root), 1);
	ck_assert(mfs_value_is_none(f.doc, mfs_value_at(f.doc, root, 0)));
	mfs_buf_release(&bytes);
	mfs_buf_release(&out);
}
END_TEST

/* ---- files that tests/interop/test_written.py loads ---- */

static void write_file(const char *name, const struct mfs_buf *bytes)
{
	const char *dir = getenv("MCOREFS_WRITTEN");

	if (dir)
		unit_write(dir, name, bytes->data, bytes->len);
}

static void put_pair(struct mfs_pickle_writer *w, const char *key, int64_t value)
{
	mfs_pickle_name(w, key);
	mfs_pickle_int(w, value);
}

static void put_values(struct mfs_pickle_writer *w)
{
	const uint64_t shape[] = {2, 3};

	mfs_pickle_name(w, "args");
	mfs_pickle_object_begin(w, "argparse", "Namespace");
	put_pair(w, "num_layers", 4);
	mfs_pickle_name(w, "params_dtype");
	mfs_pickle_dtype(w, MFS_BF16);
	mfs_pickle_object_end(w);
	put_pair(w, "small", -1);
	put_pair(w, "large", INT64_MIN);
	mfs_pickle_name(w, "larger");
	mfs_pickle_uint(w, UINT64_MAX);
	mfs_pickle_name(w, "float");
	mfs_pickle_float(w, 3.0);
	mfs_pickle_name(w, "text");
	mfs_pickle_str(w, "\xc3\xa4 \xe2\x82\xac");
	mfs_pickle_name(w, "bytes");
	mfs_pickle_bytes(w, "\0\x7f\x80\xff", 4);
	mfs_pickle_name(w, "no bytes");
	mfs_pickle_bytes(w, NULL, 0);
	mfs_pickle_name(w, "size");
	mfs_pickle_size(w, shape, 2);
	mfs_pickle_name(w, "flags");
	mfs_pickle_list_begin(w);
	mfs_pickle_bool(w, true);
	mfs_pickle_bool(w, false);
	mfs_pickle_none(w);
	mfs_pickle_list_end(w);
}

/* A tensor of each type, [3, 5], byte k of storage i being (i + k) % 2; a view; one without
 * elements. classic: only types that have a storage class. */
static uint32_t put_tensors(struct mfs_pickle_writer *w, bool classic,
			    struct mfs_torch_payload *payloads, uint8_t *bytes)
{
	const uint64_t shape[] = {3, 5}, empty[] = {0, 5}, part_shape[] = {5, 2}, stride[] = {1, 3};
	struct mfs_pickle_alias part = {.numel = 15,
					.dtype = MFS_F32,
					.offset = 3,
					.ndim = 2,
					.shape = part_shape,
					.stride = stride};
	uint32_t count = 0;

	for (enum mfs_dtype t = MFS_BOOL; t <= MFS_C128; t++) {
		if (classic && (t == MFS_F8_E5M2 || t == MFS_F8_E4M3 || t == MFS_U16 ||
				t == MFS_U32 || t == MFS_U64))
			continue;
		payloads[count] = (struct mfs_torch_payload){15 * mfs_dtype_size(t), bytes};
		for (uint64_t k = 0; k < payloads[count].size; k++)
			*bytes++ = (count + k) % 2;
		mfs_pickle_name(w, mfs_dtype_torch(t));
		mfs_pickle_tensor(w, count, t, shape, 2);
		if (t == MFS_F32)
			part.storage = count;
		count++;
	}
	mfs_pickle_name(w, "view");
	mfs_pickle_alias(w, &part);
	mfs_pickle_name(w, "empty");
	mfs_pickle_tensor(w, count, MFS_F32, empty, 2);
	payloads[count++] = (struct mfs_torch_payload){0};
	mfs_pickle_name(w, "scalar");
	mfs_pickle_tensor(w, 1, MFS_U8, NULL, 0);
	return count;
}

START_TEST(state_dict)
{
	struct mfs_torch_payload payloads[32];
	struct mfs_buf pickled = {0}, out = {0};
	struct mfs_torch_tensor t;
	struct mfs_pickle_writer w;
	struct mfs_source src;
	uint8_t bytes[4096];
	mfs_value model;
	uint32_t count;

	mfs_pickle_begin(&w, &pickled, 2);
	mfs_pickle_dict_begin(&w);
	put_values(&w);
	mfs_pickle_name(&w, "model");
	mfs_pickle_ordered_dict_begin(&w);
	count = put_tensors(&w, _i, payloads, bytes);
	mfs_pickle_ordered_dict_end(&w);
	mfs_pickle_dict_end(&w);
	unit_ok(mfs_pickle_end(&w, &err), &err);
	unit_ok(mfs_torch_save("state_dict", pickled.data, pickled.len, payloads, count, &out,
			       &err),
		&err);
	write_file(_i ? "classic.pt" : "state_dict.pt", &out);
	src = mfs_source_memory(out.data, out.len, "state_dict.pt");
	unit_ok(mfs_torch_file_open(&src, &f, &err), &err);
	model = mfs_value_get(f.doc, mfs_pickle_root(f.doc), "model");
	unit_ok(mfs_torch_tensor(&f, mfs_value_get(f.doc, model, "view"), &t, &err), &err);
	ck_assert(t.offset == 3 && t.stride[0] == 1 && t.dtype == MFS_F32);
	unit_ok(mfs_torch_tensor(&f, mfs_value_get(f.doc, model, "empty"), &t, &err), &err);
	ck_assert(t.shape[0] == 0 && t.record->size == 0);
	mfs_buf_release(&pickled);
	mfs_buf_release(&out);
}
END_TEST

/* Renumbers storages in the order of their first use and takes their bytes along. */
struct carrier {
	const struct mfs_torch_file *real;
	const uint8_t *bytes;
	const char *prefix;
	char keys[256][16];
	struct mfs_torch_payload payloads[256];
	uint32_t count;
};

static int carry(void *arg, mfs_value persid, const char *key, size_t len, uint32_t *ret,
		 struct mfs_error *e)
{
	struct carrier *c = arg;
	char name[64], text[16];

	(void)persid, (void)e;
	snprintf(text, sizeof text, "%.*s", (int)len, key);
	for (*ret = 0; *ret < c->count; ++*ret)
		if (!strcmp(c->keys[*ret], text))
			return 0;
	snprintf(name, sizeof name, "%s/data/%s", c->prefix, text);
	c->payloads[c->count].bytes = record(c->real, c->bytes, name, &c->payloads[c->count].size);
	strcpy(c->keys[c->count++], text);
	return 0;
}

START_TEST(copied_file)
{
	struct mfs_buf pickled = {0}, out = {0};
	struct mfs_pickle_hooks hooks = {.storage = carry};
	struct mfs_pickle_writer w;
	struct mfs_torch_file real;
	struct mfs_source src;
	struct carrier c = {.real = &real};
	char prefix[32], name[32];
	uint8_t *bytes;
	size_t len;

	bytes = unit_slurp(unit_fixture(fixtures[_i]), &len);
	src = mfs_source_memory(bytes, len, "real.pt");
	unit_ok(mfs_torch_file_open(&src, &real, &err), &err);
	snprintf(prefix, sizeof prefix, "%.*s", (int)strcspn(real.zip.entries[0].name, "/"),
		 real.zip.entries[0].name);
	c.prefix = prefix;
	c.bytes = bytes;
	hooks.arg = &c;
	mfs_pickle_begin(&w, &pickled, 2);
	unit_ok(mfs_pickle_copy(&w, real.doc, mfs_pickle_root(real.doc), &hooks, &err), &err);
	unit_ok(mfs_pickle_end(&w, &err), &err);
	unit_ok(mfs_torch_save(prefix, pickled.data, pickled.len, c.payloads, c.count, &out, &err),
		&err);
	snprintf(name, sizeof name, "copy-%d.pt", _i);
	write_file(name, &out);
	src = mfs_source_memory(out.data, out.len, name);
	unit_ok(mfs_torch_file_open(&src, &f, &err), &err);
	ck_assert_uint_eq(f.zip.count, real.zip.count);
	mfs_torch_file_release(&real);
	mfs_buf_release(&pickled);
	mfs_buf_release(&out);
	free(bytes);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("torch_write");
	TCase *c = tcase_create("archives");

	suite_add_tcase(s, c);
	tcase_add_checked_fixture(c, NULL, teardown);
	tcase_add_loop_test(c, real_file_to_the_byte, 0, MFS_ARRAY_SIZE(fixtures));
	tcase_add_loop_test(c, large_archives_have_zip64_records, 0, MFS_ARRAY_SIZE(large));
	tcase_add_test(c, segments_are_the_files_bytes_in_order);
	tcase_add_test(c, many_storages);
	tcase_add_test(c, archives_that_cannot_be_are_refused);
	tcase_add_test(c, items_have_torchs_size);
	tcase_add_loop_test(c, every_dtype, MFS_BOOL, MFS_C128 + 1);
	tcase_add_test(c, odd_shapes);
	tcase_add_test(c, byte_item);
	tcase_add_loop_test(c, state_dict, 0, 2);
	tcase_add_loop_test(c, copied_file, 0, MFS_ARRAY_SIZE(fixtures));
	return s;
}
