/* Megatron's vision-language checkpoints: formats/ckpt/language_part.h. */
#include "tests/unit/unit.h"

#include <string.h>

#include "formats/base/prefixes.h"
#include "formats/model/language.h"
#include "tests/unit/fake_ckpt.h"

static struct mfs_error err;

static const char *const llava[] = {
	"language_model.embedding.word_embeddings.weight",
	"language_model.decoder.layers.mlp.linear_fc2.weight",
	"vision_model.conv1.weight",
};

static int choose(struct mfs_ckpt *ckpt, const char *provider, unsigned what,
		  const char *const *names, uint32_t count)
{
	*ckpt = (struct mfs_ckpt){.dir = "DIR", .what = what, .parts = &mfs_language_parts};
	ckpt->args = fake_llama();
	ckpt->args.provider = provider;
	ckpt->args.position_embedding_type = "mrope";
	return mfs_ckpt_choose_part(ckpt, names, count, &err);
}

START_TEST(the_longest_prefix_is_seen)
{
	static const struct mfs_prefix table[] = {
		{"model.", "m."}, {"model.visual.", NULL}, {"m.", "m."}, {NULL, NULL}};
	struct mfs_prefixes seen = {.table = table};
	const struct mfs_prefix *a, *b;
	char text[8];

	ck_assert_ptr_eq(mfs_prefixes_see(&seen, "model.visual.x"), &table[1]);
	ck_assert_ptr_eq(mfs_prefixes_see(&seen, "model.visua"), &table[0]);
	ck_assert_ptr_null(mfs_prefixes_see(&seen, "lm_head"));
	ck_assert(seen.all == 3 && seen.others == 2 && !mfs_prefixes_clash(&seen, &a, &b));
	mfs_prefixes_see(&seen, "m.x");
	ck_assert(mfs_prefixes_clash(&seen, &a, &b) && a == &table[0] && b == &table[2]);
	ck_assert_uint_eq(mfs_prefix_replace(&table[0], "model.abcdefgh", text, sizeof(text)), 10);
	ck_assert_str_eq(text, "m.abcde");
}
END_TEST

START_TEST(the_language_model_is_chosen_by_provider_or_names)
{
	struct mfs_ckpt ckpt;
	char text[64];

	unit_ok(choose(&ckpt, NULL, MFS_CKPT_LANGUAGE, llava, 3), &err);
	ck_assert_str_eq(ckpt.part->family, "llava");
	ck_assert(ckpt.language && !ckpt.args.hf_family && !ckpt.args.provider);
	ck_assert_str_eq(ckpt.args.position_embedding_type, "mrope"); /* LLaVA has none */
	ck_assert_ptr_null(mfs_ckpt_part_name(&ckpt, llava[2], text, sizeof(text)));
	ck_assert_str_eq(mfs_ckpt_part_name(&ckpt, llava[1], text, sizeof(text)),
			 "decoder.layers.mlp.linear_fc2.weight");
	mfs_arena_release(&ckpt.arena);

	unit_ok(choose(&ckpt, "Qwen3VLModelProvider", MFS_CKPT_LANGUAGE, llava, 3), &err);
	ck_assert_str_eq(ckpt.part->family, "qwen3-vl");
	ck_assert_str_eq(ckpt.args.hf_family, "qwen3");
	ck_assert_str_eq(ckpt.args.position_embedding_type, "rope");
	mfs_arena_release(&ckpt.arena);

	unit_ok(choose(&ckpt, "Gemma3VLModelProvider4B", MFS_CKPT_LANGUAGE, llava, 2), &err);
	ck_assert_str_eq(ckpt.args.provider, "Gemma3ModelProvider");
	mfs_arena_release(&ckpt.arena);
}
END_TEST

START_TEST(a_part_that_is_not_there_is_refused)
{
	static const char *const text[] = {"decoder.final_layernorm.weight"};
	struct mfs_ckpt ckpt;

	unit_fails(choose(&ckpt, NULL, 0, llava, 3), &err, -ENOTSUP, "1 of its 3 tensors");
	ck_assert_ptr_nonnull(strstr(err.msg, "part=language"));
	unit_fails(choose(&ckpt, "Qwen25VLModelProvider", MFS_CKPT_LANGUAGE, llava, 3), &err,
		   -ENOTSUP, "tensor 'vision_model.conv1.weight'");
	unit_fails(choose(&ckpt, "Qwen4VLModelProvider", MFS_CKPT_LANGUAGE, llava, 3), &err,
		   -ENOTSUP, "the nearest is of qwen");
	unit_fails(choose(&ckpt, NULL, MFS_CKPT_LANGUAGE, text, 1), &err, -EINVAL,
		   "no vision-language model");
	unit_ok(choose(&ckpt, NULL, 0, text, 1), &err);
	ck_assert_ptr_null(ckpt.part);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("part");
	TCase *c = tcase_create("part");

	tcase_add_test(c, the_longest_prefix_is_seen);
	tcase_add_test(c, the_language_model_is_chosen_by_provider_or_names);
	tcase_add_test(c, a_part_that_is_not_there_is_refused);
	suite_add_tcase(s, c);
	return s;
}
