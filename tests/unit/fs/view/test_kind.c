/* The table of views, their names, and what an owner lacks of them: fs/view/kind.h,
 * fs/view/views.h. */
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/buf.h"
#include "formats/plan/vfile.h"
#include "fs/data/data_kinds.h"
#include "fs/view/view.h"
#include "fs/view/views.h"

static const struct owner {
	const struct mfs_view_table *table;
	unsigned of;
} owners[] = {{&mfs_ckpt_views, MFS_VIEW_OF_CKPT}, {&mfs_data_views, MFS_VIEW_OF_DATA}};

#define OWNERS MFS_ARRAY_SIZE(owners)

/* What front ends rely on without looking. */
START_TEST(every_kind_has_what_front_ends_need)
{
	const struct owner *o = &owners[_i];

	ck_assert_uint_gt(o->table->count, 0);
	for (unsigned i = 0; i < o->table->count; i++) {
		const struct mfs_view_kind *k = o->table->kinds[i];
		const char *slash = strchr(k->name, '/');

		ck_assert_msg(k->help && k->open, "%s", k->name);
		ck_assert_msg(!k->spec == !k->check && !k->spec == !k->list, "%s", k->name);
		ck_assert_msg(*k->name && slash != k->name, "%s", k->name);
		ck_assert_msg(!slash || (slash[1] && !strchr(slash + 1, '/')), "%s", k->name);
		ck_assert_msg(!k->takes_files || k->of & MFS_VIEW_OF_DATA, "%s", k->name);
		ck_assert_uint_lt(strlen(k->name), sizeof(((struct mfs_views_entry *)0)->name));
		ck_assert(!(k->of & (k->of - 1)) && k->of & o->of);
	}
}
END_TEST

/* Each name of an owner's directory is there once, whatever the owner has: what lies in one
 * directory stands together. */
START_TEST(entries_are_different)
{
	for (unsigned of = 0; of <= owners[_i].of; of++) {
		const struct mfs_views v = {.table = owners[_i].table, .of = of & owners[_i].of};
		struct mfs_views_entry a, b;

		for (unsigned i = 0; mfs_views_entry(&v, i, &a); i = a.end)
			for (unsigned k = a.end; mfs_views_entry(&v, k, &b); k = b.end)
				ck_assert_str_ne(a.name, b.name);
	}
}
END_TEST

static void is_named(unsigned of, const char *name, const struct mfs_view_kind *kind,
		     const char *spec)
{
	const struct owner *o = &owners[!(of & MFS_VIEW_OF_CKPT)];
	const char *found;

	ck_assert_msg(mfs_view_kind_find(o->table, of, name, &found) == kind, "%s", name);
	if (kind)
		ck_assert_str_eq(found, spec);
}

START_TEST(kinds_are_found_by_whole_names)
{
	struct mfs_buf names = {0};

	is_named(MFS_VIEW_OF_CKPT, "hf", &mfs_view_kind_hf, "");
	is_named(MFS_VIEW_OF_DATA, "hf", &mfs_view_kind_data_hf, "");
	is_named(MFS_VIEW_OF_RUN, "hf", NULL, NULL);
	is_named(MFS_VIEW_OF_CKPT, "hf/", NULL, NULL);
	is_named(MFS_VIEW_OF_CKPT, "hf/x", NULL, NULL);
	is_named(MFS_VIEW_OF_CKPT, "h", NULL, NULL);
	is_named(MFS_VIEW_OF_CKPT, "", NULL, NULL);
	is_named(MFS_VIEW_OF_CKPT, "megatron", NULL, NULL);
	is_named(MFS_VIEW_OF_CKPT, "megatron/torch", &mfs_view_kind_megatron_torch, "");
	is_named(MFS_VIEW_OF_CKPT, "megatron/torch/", NULL, NULL);
	is_named(MFS_VIEW_OF_CKPT, "megatron/torch/x", &mfs_view_kind_megatron_torch, "x");
	is_named(MFS_VIEW_OF_CKPT, "megatron/torch/x/y", NULL, NULL);
	is_named(MFS_VIEW_OF_CKPT, "megatron/torch_dist", &mfs_view_kind_megatron_torch_dist, "");
	is_named(MFS_VIEW_OF_DATA, "megatron/torch_dist", NULL, NULL);

	ck_assert(mfs_view_kind_is_group(&mfs_ckpt_views, MFS_VIEW_OF_CKPT, ""));
	ck_assert(mfs_view_kind_is_group(&mfs_ckpt_views, MFS_VIEW_OF_CKPT, "megatron"));
	ck_assert(!mfs_view_kind_is_group(&mfs_data_views, MFS_VIEW_OF_DATA, "megatron"));
	ck_assert(!mfs_view_kind_is_group(&mfs_ckpt_views, MFS_VIEW_OF_CKPT, "mega"));
	ck_assert(!mfs_view_kind_is_group(&mfs_ckpt_views, MFS_VIEW_OF_CKPT, "megatron/torch"));

	mfs_view_kind_names(&mfs_data_views, MFS_VIEW_OF_RUN, &names);
	ck_assert_ptr_nonnull(strstr(names.data, "samples/train-s4096 (or another), cache/"));
	mfs_buf_release(&names);
}
END_TEST

static unsigned number_of(const struct mfs_view_kind *kind)
{
	unsigned i = 0;

	while (mfs_ckpt_views.kinds[i] != kind)
		i++;
	return i;
}

static void why_not_is(const struct mfs_views *v, const char *expected)
{
	struct mfs_view *view;
	struct mfs_error err;
	char text[256] = "";
	size_t len;

	unit_ok(mfs_views_new_why_not(v, &view, &err), &err);
	ck_assert_uint_eq(view->count, 1);
	unit_ok(mfs_vfile_pread(view->files[0].data, 0, text, sizeof(text) - 1, &len, &err), &err);
	ck_assert_str_eq(text, expected);
	mfs_view_free(view);
}

/* A directory is missing when all in it is; else what is missing has its own name. */
START_TEST(what_is_lacking)
{
	struct mfs_views v = {.table = &mfs_ckpt_views, .of = MFS_VIEW_OF_CKPT};
	const unsigned torch = number_of(&mfs_view_kind_megatron_torch);
	const unsigned dist = number_of(&mfs_view_kind_megatron_torch_dist);
	const unsigned hybrid = number_of(&mfs_view_kind_megatron_hybrid_torch);
	struct mfs_views_entry e;

	ck_assert(!mfs_views_lacks(&v));
	v.why_not[dist] = "no reason";
	ck_assert(mfs_views_lacks(&v));
	ck_assert(mfs_views_entry(&v, torch, &e));
	ck_assert(e.is_group && !e.why_not && e.first == torch && e.end == hybrid + 2);
	ck_assert_str_eq(e.name, "megatron");
	/* Nobody wonders where these are. */
	v.why_not[hybrid] = v.why_not[hybrid + 1] = "no HybridModel";
	why_not_is(&v, "megatron/torch_dist: no reason\n");

	v.why_not[torch] = "its rope";
	v.why_not[number_of(&mfs_view_kind_hf)] = "no family";
	ck_assert(mfs_views_entry(&v, torch, &e));
	ck_assert_str_eq(e.why_not, "its rope");
	why_not_is(&v, "hf: no family\nmegatron: its rope\n");
	v.why_not[number_of(&mfs_view_kind_hf_bf16)] = v.why_not[number_of(&mfs_view_kind_hf)];
	why_not_is(&v, "hf, hf-bf16: no family\nmegatron: its rope\n");
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("kind");
	TCase *c = unit_case(s, "table", kinds_are_found_by_whole_names);

	tcase_add_loop_test(c, every_kind_has_what_front_ends_need, 0, OWNERS);
	tcase_add_loop_test(c, entries_are_different, 0, OWNERS);
	tcase_add_test(c, what_is_lacking);
	return s;
}
