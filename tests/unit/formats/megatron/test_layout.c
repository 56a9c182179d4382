/* How models lie on ranks (formats/megatron/layout.h): names, what is impossible, where layers
 * go. */
#include "formats/ckpt/read/ckpt_open.h"
#include "formats/megatron/layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "tests/unit/random_layout.h"
#include "tests/unit/unit.h"

static struct mfs_error err;

static void same_layout(const struct mfs_layout *a, const struct mfs_layout *b)
{
	ck_assert(a->tp == b->tp && a->pp == b->pp && a->ep == b->ep && a->etp == b->etp &&
		  a->vpp == b->vpp && a->first == b->first && a->last == b->last);
	ck_assert_ptr_eq(a->chunk_layers, b->chunk_layers);
}

/* ---- names ---- */

static const struct {
	const char *name, *shortest; /* NULL: the same */
	struct mfs_layout p;
} names[] = {
	{"tp1-pp1", NULL, {1, 1, 1, 1, 1, 0, 0, NULL, false}},
	{"tp4-pp2", NULL, {4, 2, 1, 4, 1, 0, 0, NULL, false}},
	{"tp2-pp1-ep8", NULL, {2, 1, 8, 2, 1, 0, 0, NULL, false}},
	{"tp2-pp1-ep8-etp1", NULL, {2, 1, 8, 1, 1, 0, 0, NULL, false}},
	{"tp8-pp16-ep2-etp4-vpp3-first5-last7", NULL, {8, 16, 2, 4, 3, 5, 7, NULL, false}},
	{"tp1-pp2-last3", NULL, {1, 2, 1, 1, 1, 0, 3, NULL, false}},
	{"tp100000-pp1", NULL, {100000, 1, 1, 100000, 1, 0, 0, NULL, false}},
	{"tp2-pp1-ep1-etp2-vpp1", "tp2-pp1", {2, 1, 1, 2, 1, 0, 0, NULL, false}},
};

START_TEST(names_are_read_and_written)
{
	char text[MFS_LAYOUT_NAME_SIZE];
	struct mfs_layout p;

	ck_assert(mfs_layout_parse(names[_i].name, &p));
	same_layout(&p, &names[_i].p);
	ck_assert_str_eq(mfs_layout_name(&p, text),
			 names[_i].shortest ? names[_i].shortest : names[_i].name);
}
END_TEST

static const char *const no_names[] = {
	"",
	"tp",
	"tp2",
	"pp2",
	"tp2-pp",
	"pp2-tp2",
	"tp0-pp1",
	"tp01-pp1",
	"tp2-pp0",
	"tp2-pp1-",
	"tp2-pp1 ",
	" tp2-pp1",
	"TP2-pp1",
	"tp2_pp1",
	"tp-2-pp1",
	"tp+2-pp1",
	"tp2-pp1-ep0",
	"tp2-pp1-xp2",
	"tp2-pp1-etp4-ep2",
	"tp2-pp1-ep2-ep2",
	"tp2-pp1/x",
	"tp2-pp1-last1-first1",
	"tp100001-pp1",
	"tp9999999-pp1",
	"tp4294967298-pp1",
	"tp2-pp1-vpp",
	"tp2-pp1-first0",
	"tp\xb2-pp1",
	"tp2--pp1",
};

START_TEST(what_is_no_name)
{
	struct mfs_layout p = {.tp = 77};

	ck_assert_msg(!mfs_layout_parse(no_names[_i], &p), "'%s' was taken", no_names[_i]);
	ck_assert_uint_eq(p.tp, 77);
}
END_TEST

/* ---- random ones ---- */

START_TEST(random_layouts_have_names_and_layers)
{
	srand((unsigned)_i + 1);
	for (int round = 0; round < 400; round++) {
		struct mfs_megatron_args a;
		struct mfs_layout p, back;
		char text[MFS_LAYOUT_NAME_SIZE];
		uint32_t next = 0, first, want_first;

		random_layout(_i, &a, &p);
		mfs_layout_name(&p, text);
		ck_assert(mfs_layout_parse(text, &back));
		same_layout(&p, &back);
		for (uint32_t vp = 0; vp < p.vpp; vp++)
			for (uint32_t pp = 0; pp < p.pp; pp++) {
				const uint32_t n = mfs_layout_layers(&p, &a, vp, pp, &first);

				ck_assert_uint_eq(
					n, random_layout_layers(&p, &a, vp, pp, &want_first));
				ck_assert_msg(first == want_first && first == next,
					      "%s: chunk (%u, %u) begins with layer %u, not %u",
					      text, vp, pp, first, want_first);
				next += n;
			}
		ck_assert_int_eq(next, a.num_layers);
	}
}
END_TEST

/* ---- impossible ones ---- */

static struct mfs_megatron_args eight_layers(void)
{
	struct mfs_megatron_args a = fake_llama();

	a.num_layers = 8;
	return a;
}

static struct mfs_megatron_args six_groups(void)
{
	struct mfs_megatron_args a = fake_llama();

	a.num_attention_heads = 12;
	a.num_query_groups = 6;
	return a;
}

static const struct {
	struct mfs_megatron_args (*args)(void);
	const char *name, *sentence; /* NULL: possible */
} layouts[] = {
	{fake_llama, "tp4-pp2", NULL}, /* more tensor ranks than query groups */
	{fake_llama, "tp3-pp1", "tp3 is impossible: 4 attention heads cannot be divided by 3"},
	{fake_llama, "tp8-pp1", "4 attention heads"},
	{six_groups, "tp12-pp1", "176 feed-forward columns"},
	{six_groups, "tp4-pp1", "tp4 is impossible: 6 query groups cannot be divided by 4"},
	{six_groups, "tp2-pp1", NULL},
	{fake_llama, "tp1-pp3", "pp3 is impossible: 2 layers cannot be divided among 3 stages"},
	{eight_layers, "tp1-pp3", "tp1-pp3-first4 is possible"},
	{eight_layers, "tp1-pp3-first4", NULL},
	{eight_layers, "tp1-pp3-first2-last2", NULL},
	{eight_layers, "tp1-pp3-first3", "5 layers cannot be divided among 2 further stages"},
	{eight_layers, "tp1-pp2-first4-last4", NULL},
	{eight_layers, "tp1-pp2-first4-last3", "pp2 is impossible"},
	{eight_layers, "tp1-pp2-first9", "would have 9 layers, but the model has 8"},
	{eight_layers, "tp1-pp2-first8", "a stage would have no layers"},
	{eight_layers, "tp1-pp1-first4-last4", "no first or last one"},
	{eight_layers, "tp1-pp2-vpp2", NULL},
	{eight_layers, "tp1-pp2-vpp3", "vpp3 is impossible"},
	{eight_layers, "tp1-pp1-vpp2", "a single pipeline stage cannot be interleaved"},
	{eight_layers, "tp1-pp2-vpp2-first3", "vpp2 is impossible"},
	{fake_llama, "tp1-pp1-ep2", "the model has no experts"},
	{fake_llama, "tp2-pp1-etp1", "the model has no experts"},
	{fake_mixtral, "tp1-pp1-ep4", NULL},
	{fake_nemotron_h, "tp4-pp1",
	 "tp4 is impossible: 2 groups of a Mamba mixer cannot be divided by 4"},
	{fake_nemotron_h, "tp1-pp2-vpp2", "vpp2 is impossible: a model of a pattern of layers"},
	{fake_mixtral, "tp1-pp1-ep3", "ep3 is impossible: 4 experts cannot be divided by 3"},
	{fake_mixtral, "tp4-pp1-ep2-etp2", NULL},
	{fake_mixtral, "tp2-pp1-etp4", "etp4 is impossible with tp2"},
	{fake_mixtral, "tp4-pp1-ep8", "4 experts"},
	{fake_gpt_oss, "tp2-pp1-ep2", "biases of experts with etp1 alone"},
	{fake_gpt_oss, "tp2-pp2-ep2-etp1", NULL},
	{fake_deepseek, "tp4-pp2-ep4", NULL},
	{fake_llama, "tp1000-pp1000", "more than 100000 ranks"},
	{fake_mixtral, "tp100-pp100-ep100", "more than 100000 ranks"},
};

START_TEST(impossible_layouts_are_refused)
{
	const struct mfs_megatron_args a = layouts[_i].args();
	struct mfs_layout p;

	ck_assert(mfs_layout_parse(layouts[_i].name, &p));
	if (layouts[_i].sentence)
		unit_fails(mfs_layout_check(&p, &a, &err), &err, -EINVAL, layouts[_i].sentence);
	else
		unit_ok(mfs_layout_check(&p, &a, &err), &err);
}
END_TEST

/* ---- of checkpoints ---- */

static const struct {
	const char *fixture, *layout;
} fixtures[] = {
	{"weights/llama-torch-tp2-pp2/iter_0000040", "tp2-pp2"},
	{"weights/gpt2-torch-tp2-pp2/iter_0000040", "tp2-pp2"},
	{"weights/mixtral-torch-pp2-ep2/iter_0000040", "tp1-pp2-ep2"},
	{"weights/qwen3-torch_dist-tp4/iter_0000040", "tp4-pp1"},
	{"weights/llama-torch_dist-tp2-pp2-vpp2/iter_0000040", "tp2-pp2-vpp2"},
	{"weights/mixtral-torch_dist-pp2-ep2/iter_0000040", "tp1-pp2-ep2"},
	{"weights/deepseek-torch_dist-pp2-ep2/iter_0000040", "tp1-pp2-ep2"},
	{"resume/qwen2-torch-tp2-dp2-distopt/iter_0000020", "tp2-pp1"},
};

START_TEST(fixtures_were_saved_at)
{
	char text[MFS_LAYOUT_NAME_SIZE];
	struct mfs_layout p;
	struct mfs_ckpt *ckpt;

	unit_ok(mfs_ckpt_open(unit_fixture(fixtures[_i].fixture), 0, &ckpt, &err), &err);
	ck_assert(mfs_layout_of(ckpt, &p));
	ck_assert_str_eq(mfs_layout_name(&p, text), fixtures[_i].layout);
	mfs_ckpt_free(ckpt);
}
END_TEST

#define COUNT(a) (int)MFS_ARRAY_SIZE(a)

Suite *mfs_suite(void)
{
	Suite *s = suite_create("layout");
	TCase *c = tcase_create("Layout");

	tcase_add_loop_test(c, names_are_read_and_written, 0, COUNT(names));
	tcase_add_loop_test(c, what_is_no_name, 0, COUNT(no_names));
	tcase_add_loop_test(c, random_layouts_have_names_and_layers, 0, RANDOM_FAMILIES);
	tcase_add_loop_test(c, impossible_layouts_are_refused, 0, COUNT(layouts));
	tcase_add_loop_test(c, fixtures_were_saved_at, 0, COUNT(fixtures));
	suite_add_tcase(s, c);
	return s;
}
