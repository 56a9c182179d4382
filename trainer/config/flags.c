#include "trainer/config/flags_i.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/array.h"

/* In the order of --help. */
const struct mft_flag_group *const mft_flag_groups[] = {
	&mft_flags_ours,
	&mft_flags_transformer_configuration,
	&mft_flags_network_size,
	&mft_flags_moe,
	&mft_flags_mla,
	&mft_flags_experimental_attention_variant,
	&mft_flags_heterogeneous_architecture,
	&mft_flags_training,
	&mft_flags_regularization,
	&mft_flags_learning_rate_and_weight_decay,
	&mft_flags_mixed_precision,
	&mft_flags_rng_and_initialization,
	&mft_flags_validation,
	&mft_flags_transformer_engine,
	&mft_flags_experimental,
	&mft_flags_data_and_dataloader,
	&mft_flags_tokenizer,
	&mft_flags_checkpointing,
	&mft_flags_distributed_init,
	&mft_flags_logging,
	&mft_flags_profiling,
	&mft_flags_straggler,
	&mft_flags_opentelemetry,
	&mft_flags_rerun_engine,
	&mft_flags_rl,
	&mft_flags_inference,
	&mft_flags_autoresume,
	&mft_flags_biencoder,
	&mft_flags_vision,
	&mft_flags_logits_distillation,
	&mft_flags_workload_inspector,
	&mft_flags_one_logger,
	&mft_flags_in_process_restart,
	&mft_flags_ft_package,
	&mft_flags_msc,
	&mft_flags_sft,
	&mft_flags_fault_injector,
	&mft_flags_derived,
};
const size_t mft_flag_group_count = MFS_ARRAY_SIZE(mft_flag_groups);

size_t mft_flag_count(void)
{
	size_t count = 0;

	for (size_t g = 0; g < mft_flag_group_count; g++)
		count += mft_flag_groups[g]->count;
	return count;
}

const struct mft_flag *mft_flag_at(size_t number)
{
	for (size_t g = 0; g < mft_flag_group_count; g++) {
		if (number < mft_flag_groups[g]->count)
			return &mft_flag_groups[g]->flags[number];
		number -= mft_flag_groups[g]->count;
	}
	return NULL;
}

size_t mft_flag_of_dest(const char *dest)
{
	size_t number = 0;

	for (size_t g = 0; g < mft_flag_group_count; g++)
		for (size_t i = 0; i < mft_flag_groups[g]->count; i++, number++)
			if (!strcmp(mft_flag_groups[g]->flags[i].dest, dest))
				return number;
	return SIZE_MAX;
}

/* ---- spellings ---- */

/* "--PREFIXname" of a dest, with hyphens for underscores. */
static void spell(const char *prefix, const char *dest, char text[MFT_FLAG_SPELLING])
{
	snprintf(text, MFT_FLAG_SPELLING, "--%s%s", prefix, dest);
	for (char *c = text; *c; c++)
		if (*c == '_')
			*c = '-';
}

/* Word i of a list with spaces between. */
static bool word(const char *list, unsigned i, char text[MFT_FLAG_SPELLING])
{
	for (; *list; list += strspn(list, " ")) {
		const size_t len = strcspn(list, " ");

		if (!i--) {
			snprintf(text, MFT_FLAG_SPELLING, "%.*s", (int)len, list);
			return true;
		}
		list += len;
	}
	return false;
}

bool mft_flag_spelling(const struct mft_flag *f, unsigned i, char text[MFT_FLAG_SPELLING],
		       bool *ret_on)
{
	static const char *const off[] = {"no-", "disable-"}, *const both[] = {"", "no-"};

	*ret_on = f->kind != MFT_FLAG_OFF;
	if (f->kind == MFT_FLAG_DERIVED)
		return false;
	if (f->kind == MFT_FLAG_SWITCH) {
		char name[MFT_FLAG_SPELLING];

		if (i > 1)
			return false;
		*ret_on = !i;
		if (f->names)
			word(f->names, 0, name);
		spell(both[i], f->names ? name + 2 : f->dest, text);
		return true;
	}
	if (f->names)
		return word(f->names, i, text);
	if (i > (f->kind == MFT_FLAG_OFF))
		return false;
	spell(f->kind == MFT_FLAG_OFF ? off[i] : "", f->dest, text);
	return true;
}

static bool is_spelt(const struct mft_flag *f, const char *text, size_t len, bool *ret_on)
{
	char name[MFT_FLAG_SPELLING];

	for (unsigned i = 0; mft_flag_spelling(f, i, name, ret_on); i++)
		if (strlen(name) == len && !memcmp(name, text, len))
			return true;
	return false;
}

size_t mft_flag_of_spelling(const char *text, size_t len, bool *ret_on)
{
	size_t number = 0;

	for (size_t g = 0; g < mft_flag_group_count; g++)
		for (size_t i = 0; i < mft_flag_groups[g]->count; i++, number++)
			if (is_spelt(&mft_flag_groups[g]->flags[i], text, len, ret_on))
				return number;
	return SIZE_MAX;
}

bool mft_flag_is_choice(const char *choices, const char *value, size_t len)
{
	for (; *choices; choices += *choices == '|') {
		const size_t n = strcspn(choices, "|");

		if (n == len && !memcmp(choices, value, len))
			return true;
		choices += n;
	}
	return false;
}
