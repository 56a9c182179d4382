/*
 * Random states in Megatron views: whose states a rank gets, under which keys a torch_dist view has
 * them, and how values with tensors are copied (formats/megatron/write/copy_values.h).
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/ckpt/rng.h"
#include "formats/optim/read/optim_open.h"
#include "formats/torch/dcp.h"
#include "formats/optim/buffers/rank_optim.h"
#include "formats/torch/torch_write.h"
#include "formats/megatron/write/copy_values.h"
#include "fs/view/kind.h"
#include "fs/view/view.h"

#define EP2	   "optim/mixtral-torch-pp2-ep2/iter_0000001"
#define EP2_ETP1   "optim/mixtral-torch-tp2-ep2-etp1-distopt/iter_0000001"
#define STATE_FILE "model_optim_rng.pt"

static struct mfs_error err;

/* ---- values, with the bytes of their tensors, as bytes that can be compared ---- */

struct copied {
	struct mfs_buf pickle, storages;
	unsigned count; /* of storages */
};

static int add(void *arg, const void *bytes, uint64_t size, uint32_t *ret, struct mfs_error *e)
{
	struct copied *c = arg;

	(void)e;
	mfs_buf_add(&c->storages, bytes, size);
	*ret = c->count++;
	return 0;
}

static int copy(const struct mfs_torch_file *f, mfs_value value, struct copied *ret)
{
	struct mfs_pickle_writer w;
	struct mfs_arena arena = {0};
	const struct mfs_copy_sink to = {.w = &w, .arena = &arena, .add = add, .arg = ret};
	int rc;

	*ret = (struct copied){0};
	mfs_pickle_begin(&w, &ret->pickle, 2);
	rc = mfs_copy_value(&to, f, value, &err);
	if (rc)
		mfs_pickle_abandon(&w);
	else
		unit_ok(mfs_pickle_end(&w, &err), &err);
	mfs_arena_release(&arena);
	return rc;
}

static void release(struct copied *c)
{
	mfs_buf_release(&c->pickle);
	mfs_buf_release(&c->storages);
}

static bool same_bytes(const struct mfs_buf *a, const struct mfs_buf *b)
{
	return a->len == b->len && !memcmp(a->data, b->data, a->len);
}

/* Of an archive in memory; key NULL: of an item, a list of one object. */
static struct copied copy_archive(const void *bytes, size_t len, const char *key)
{
	struct mfs_source src = mfs_source_memory(bytes, len, "archive");
	struct mfs_torch_file f;
	struct copied c;
	mfs_value root;

	unit_ok(mfs_torch_file_open(&src, &f, &err), &err);
	root = mfs_pickle_root(f.doc);
	root = key ? mfs_value_get(f.doc, root, key) : mfs_value_at(f.doc, root, 0);
	ck_assert_int_eq(mfs_value_type(f.doc, root), MFS_V_LIST);
	unit_ok(copy(&f, root, &c), &err);
	ck_assert_uint_ge(c.count, 2); /* torch's and CUDA's */
	mfs_torch_file_release(&f);
	return c;
}

static struct copied copy_source(const char *iteration, const char *rank)
{
	char path[600];
	struct copied c;
	uint8_t *bytes;
	size_t len;

	snprintf(path, sizeof(path), "%s/%s/" STATE_FILE, unit_fixture(iteration), rank);
	bytes = unit_slurp(path, &len);
	c = copy_archive(bytes, len, "rng_state");
	free(bytes);
	return c;
}

/* ---- views ---- */

struct shown {
	struct mfs_ckpt *ckpt;
	struct mfs_view *view;
};

static struct shown show(const char *iteration, const char *name)
{
	const struct mfs_view_options opt = {0};
	struct mfs_view_origin source = {.options = &opt, .number = 1};
	const struct mfs_view_kind *kind;
	const char *spec;
	struct shown s;

	unit_ok(mfs_optim_open(unit_fixture(iteration), &s.ckpt, &err), &err);
	source.ckpt = s.ckpt;
	kind = mfs_view_kind_find(&mfs_ckpt_views, MFS_VIEW_OF_FULL, name, &spec);
	unit_ok(kind->open(&source, spec, &s.view, &err), &err);
	return s;
}

static void hide(struct shown *s)
{
	mfs_view_free(s->view);
	mfs_ckpt_free(s->ckpt);
}

/* name: below the iteration's directory. */
static uint8_t *content(const struct shown *s, const char *name, size_t *ret_len)
{
	for (uint32_t i = 0; i < s->view->count; i++) {
		struct mfs_view_file *f = &s->view->files[i];
		const char *slash = strchr(f->name, '/');
		uint8_t *bytes;

		if (!slash || strcmp(slash + 1, name))
			continue;
		*ret_len = mfs_vfile_size(f->data);
		bytes = malloc(*ret_len + 1);
		unit_ok(mfs_vfile_pread(f->data, 0, bytes, *ret_len, ret_len, &err), &err);
		return bytes;
	}
	ck_abort_msg("no file %s", name);
	return NULL;
}

/* The rank of a torch view has the states of a file of the source's, and of no other. */
static void expect_rank(const struct shown *s, const char *rank, const char *iteration,
			const char *source)
{
	struct copied have, want = copy_source(iteration, source);
	char name[100];
	uint8_t *bytes;
	size_t len;

	snprintf(name, sizeof(name), "%s/" STATE_FILE, rank);
	bytes = content(s, name, &len);
	have = copy_archive(bytes, len, "rng_state");
	free(bytes);
	ck_assert_msg(same_bytes(&have.storages, &want.storages) &&
			      same_bytes(&have.pickle, &want.pickle),
		      "%s has not the random states of %s", rank, source);
	release(&have);
	release(&want);
}

/* ---- legacy sources: every expert rank has states of its own ---- */

START_TEST(own_layout)
{
	static const char *const ranks[] = {"mp_rank_00_000_000", "mp_rank_00_000_001",
					    "mp_rank_00_001_000", "mp_rank_00_001_001"};
	struct shown s = show(EP2, "megatron/torch/tp1-pp2-ep2");
	struct copied a = copy_source(EP2, ranks[0]), b = copy_source(EP2, ranks[1]);

	ck_assert(!same_bytes(&a.storages, &b.storages)); /* else this test says nothing */
	release(&a);
	release(&b);
	ck_assert(mfs_rng_there(s.ckpt));
	for (unsigned i = 0; i < 4; i++)
		expect_rank(&s, ranks[i], EP2, ranks[i]);
	hide(&s);
}
END_TEST

START_TEST(other_layouts)
{
	struct shown s = show(EP2, "megatron/torch/tp1-pp1-ep4-etp1");

	for (unsigned ep = 0; ep < 4; ep++) {
		char rank[32], source[32];

		snprintf(rank, sizeof(rank), "mp_rank_00_%03u", ep);
		snprintf(source, sizeof(source), "mp_rank_00_000_%03u", ep % 2);
		expect_rank(&s, rank, EP2, source);
	}
	hide(&s);
	s = show(EP2, "megatron/torch/tp2-pp1");
	expect_rank(&s, "mp_rank_00", EP2, "mp_rank_00_000_000");
	expect_rank(&s, "mp_rank_01", EP2, "mp_rank_00_000_000");
	hide(&s);
}
END_TEST

/* With ETP1 of TP2 the expert rank is the tensor rank: two files, not four. */
START_TEST(expert_tensor_ranks)
{
	struct shown s = show(EP2_ETP1, "megatron/torch/tp2-pp1-ep2-etp1");

	ck_assert(mfs_rng_there(s.ckpt));
	ck_assert_uint_eq(mfs_rng_find(s.ckpt, 0, 0, 0), mfs_rng_find(s.ckpt, 0, 0, 1));
	ck_assert_uint_eq(mfs_rng_find(s.ckpt, 1, 0, 0), mfs_rng_find(s.ckpt, 1, 0, 1));
	ck_assert_uint_ne(mfs_rng_find(s.ckpt, 0, 0, 0), mfs_rng_find(s.ckpt, 1, 0, 0));
	ck_assert_uint_eq(mfs_rng_find(s.ckpt, 2, 0, 0), MFS_RNG_NONE);
	ck_assert_uint_eq(mfs_rng_find(s.ckpt, 0, 1, 0), MFS_RNG_NONE);
	expect_rank(&s, "mp_rank_00_000", EP2_ETP1, "mp_rank_00_000");
	expect_rank(&s, "mp_rank_01_001", EP2_ETP1, "mp_rank_01_001");
	hide(&s);
	s = show(EP2_ETP1, "megatron/torch/tp2-pp1-ep2");
	expect_rank(&s, "mp_rank_00_001", EP2_ETP1, "mp_rank_00_000");
	expect_rank(&s, "mp_rank_01_000", EP2_ETP1, "mp_rank_01_001");
	hide(&s);
}
END_TEST

/* ---- torch_dist views ---- */

static void expect_item(const struct shown *s, const struct mfs_dcp *dcp, const char *key,
			const char *iteration, const char *source)
{
	const struct mfs_dcp_bytes *b = mfs_dcp_bytes(dcp, key);
	struct copied have, want = copy_source(iteration, source);
	uint8_t *bytes;
	size_t len;

	ck_assert_msg(b != NULL, "%s is missing", key);
	bytes = content(s, dcp->files[b->item.file], &len);
	ck_assert_uint_le(b->item.offset + b->item.length, len);
	have = copy_archive(bytes + b->item.offset, b->item.length, NULL);
	free(bytes);
	ck_assert_msg(same_bytes(&have.storages, &want.storages) &&
			      same_bytes(&have.pickle, &want.pickle),
		      "%s has not the random states of %s", key, source);
	release(&have);
	release(&want);
}

static void read_index(const struct shown *s, struct mfs_dcp *ret)
{
	size_t len;
	uint8_t *bytes = content(s, ".metadata", &len);

	unit_ok(mfs_dcp_parse(bytes, len, ".metadata", ret, &err), &err);
	free(bytes);
}

static unsigned count_items(const struct mfs_dcp *dcp)
{
	unsigned count = 0;

	for (uint32_t i = 0; i < dcp->bytes_count; i++)
		count += !strncmp(dcp->bytes[i].key, "rng_state/", 10);
	return count;
}

/* Runs of two data-parallel ranks (world sizes 4 and 4), which are the expert ranks. */
START_TEST(items_of_generators_are_those_of_the_ranks)
{
	struct shown s = show(EP2, "megatron/torch_dist");
	struct mfs_dcp dcp;

	read_index(&s, &dcp);
	ck_assert_uint_eq(count_items(&dcp), 2 + 2 * 2);
	expect_item(&s, &dcp, "rng_state/shard_0.0_2.1", EP2, "mp_rank_00_000_000");
	expect_item(&s, &dcp, "rng_state/shard_1.0_2.1", EP2, "mp_rank_00_001_000");
	expect_item(&s, &dcp, "rng_state/shard_0.0.0_2.1.2", EP2, "mp_rank_00_000_000");
	expect_item(&s, &dcp, "rng_state/shard_0.0.1_2.1.2", EP2, "mp_rank_00_000_001");
	expect_item(&s, &dcp, "rng_state/shard_1.0.0_2.1.2", EP2, "mp_rank_00_001_000");
	expect_item(&s, &dcp, "rng_state/shard_1.0.1_2.1.2", EP2, "mp_rank_00_001_001");
	mfs_dcp_release(&dcp);
	hide(&s);
}
END_TEST

START_TEST(items_without_experts)
{
	struct shown s =
		show("resume/llama-torch_dist-tp2-pp2/iter_0000020", "megatron/torch_dist");
	struct mfs_dcp dcp;

	read_index(&s, &dcp);
	ck_assert_uint_eq(count_items(&dcp), 4);
	mfs_dcp_release(&dcp);
	hide(&s);
}
END_TEST

/* Both spellings of a rank's key are one rank's states; our reader takes the view back. */
START_TEST(both_spellings_read)
{
	struct shown s = show(EP2, "megatron/torch_dist");
	struct mfs_ckpt *again;

	for (uint32_t i = 0; i < s.view->count; i++) {
		const char *slash = strchr(s.view->files[i].name, '/');
		uint8_t *bytes;
		size_t len;

		if (!slash)
			continue;
		bytes = content(&s, slash + 1, &len);
		unit_write(unit_tmpdir(), slash + 1, bytes, len);
		free(bytes);
	}
	unit_ok(mfs_optim_open(unit_tmpdir(), &again, &err), &err);
	ck_assert(mfs_rng_there(again));
	ck_assert_uint_eq(mfs_rng_count(again), 2);
	mfs_ckpt_free(again);
	hide(&s);
}
END_TEST

/* ---- copying ---- */

#define KIB 1024

/* A list of count tensors, the i-th over storage i % storages of the given size. */
static void make_list(struct mfs_buf *out, uint32_t count, uint32_t storages, uint64_t size)
{
	struct mfs_torch_payload *payloads = calloc(storages, sizeof(*payloads));
	const uint64_t shape[] = {size / 4};
	uint8_t *bytes = calloc(1, size);
	struct mfs_pickle_writer w;
	struct mfs_buf pickle = {0};

	mfs_pickle_begin(&w, &pickle, 2);
	mfs_pickle_list_begin(&w);
	for (uint32_t i = 0; i < count; i++) {
		mfs_pickle_batch(&w, MFS_OP_APPENDS, i);
		mfs_pickle_tensor(&w, i % storages, MFS_F32, shape, 1);
	}
	mfs_pickle_list_end(&w);
	unit_ok(mfs_pickle_end(&w, &err), &err);
	for (uint32_t i = 0; i < storages; i++)
		payloads[i] = (struct mfs_torch_payload){size, bytes};
	unit_ok(mfs_torch_save("archive", pickle.data, pickle.len, payloads, storages, out, &err),
		&err);
	mfs_buf_release(&pickle);
	free(payloads);
	free(bytes);
}

static const struct {
	uint32_t count, storages;
	uint64_t size;
	int rc;
	const char *part;
} lists[] = {
	{5, 2, 5 * KIB, 0, NULL},
	{60000, 3, 5 * KIB, 0, NULL}, /* once 300 MB */
	{0, 1, 4, 0, NULL},
	{16, 16, KIB *KIB, 0, NULL},
	{17, 17, KIB *KIB, -ENOTSUP, "more than 16777216 bytes"},
	{200000, 1, 5 * KIB, -ENOTSUP, "more than 65536 tensors"},
};

START_TEST(lists_of_generators_are_copied)
{
	struct mfs_buf archive = {0};
	struct mfs_torch_file f;
	struct mfs_source src;
	struct copied c;

	make_list(&archive, lists[_i].count, lists[_i].storages, lists[_i].size);
	src = mfs_source_memory(archive.data, archive.len, "list.pt");
	unit_ok(mfs_torch_file_open(&src, &f, &err), &err);
	if (lists[_i].rc) {
		unit_fails(copy(&f, mfs_pickle_root(f.doc), &c), &err, lists[_i].rc,
			   lists[_i].part);
		ck_assert_ptr_nonnull(strstr(err.msg, "list.pt: "));
	} else {
		unit_ok(copy(&f, mfs_pickle_root(f.doc), &c), &err);
		/* Each storage once; a list of nothing has none. */
		ck_assert_uint_eq(c.count, lists[_i].count ? lists[_i].storages : 0);
		ck_assert_uint_eq(c.storages.len, c.count * lists[_i].size);
	}
	release(&c);
	mfs_torch_file_release(&f);
	mfs_buf_release(&archive);
}
END_TEST

/* ---- steps ---- */

START_TEST(steps_are_written_as_torch_writes_them)
{
	static const double steps[] = {40,	 0,	 0.5,	     1e300,   -1e300,
				       INFINITY, 0x1p53, 0x1p53 - 1, -0x1p63, 0x1p63};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(steps); i++) {
		struct mfs_pickle_writer w;
		struct mfs_buf out = {0};
		struct mfs_pickle *doc;
		double have;
		int64_t number;

		mfs_pickle_begin(&w, &out, 2);
		mfs_pickle_dict_begin(&w);
		mfs_copy_step(&w, steps[i]);
		mfs_pickle_dict_end(&w);
		unit_ok(mfs_pickle_end(&w, &err), &err);
		unit_ok(mfs_pickle_parse(out.data, out.len, "step", NULL, &doc, &err), &err);
		ck_assert(mfs_value_float(doc, mfs_value_get(doc, mfs_pickle_root(doc), "step"),
					  &have));
		ck_assert(have == steps[i]);
		ck_assert_int_eq(mfs_value_int(doc,
					       mfs_value_get(doc, mfs_pickle_root(doc), "step"),
					       &number),
				 fabs(steps[i]) < 0x1p53 && steps[i] != 0.5);
		mfs_pickle_free(doc);
		mfs_buf_release(&out);
	}
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("megatron_rng");
	TCase *c = unit_case(s, "torch", own_layout);

	tcase_add_test(c, other_layouts);
	tcase_add_test(c, expert_tensor_ranks);
	c = unit_case(s, "megatron/torch_dist", items_of_generators_are_those_of_the_ranks);
	tcase_add_test(c, items_without_experts);
	tcase_add_test(c, both_spellings_read);
	c = unit_case(s, "copy", steps_are_written_as_torch_writes_them);
	tcase_add_loop_test(c, lists_of_generators_are_copied, 0, MFS_ARRAY_SIZE(lists));
	return s;
}
