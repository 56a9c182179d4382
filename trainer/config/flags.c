#include "trainer/config/flags_i.h"

#include <stdio.h>
#include <string.h>

/* In the order of --help. */
const struct mfs_flag_group *const mfs_flag_groups[] = {
	&mfs_flags_ours,
	&mfs_flags_transformer_configuration,
	&mfs_flags_network_size,
	&mfs_flags_moe,
	&mfs_flags_mla,
	&mfs_flags_experimental_attention_variant,
	&mfs_flags_heterogeneous_architecture,
	&mfs_flags_training,
	&mfs_flags_regularization,
	&mfs_flags_learning_rate_and_weight_decay,
	&mfs_flags_mixed_precision,
	&mfs_flags_rng_and_initialization,
	&mfs_flags_validation,
	&mfs_flags_transformer_engine,
	&mfs_flags_experimental,
	&mfs_flags_data_and_dataloader,
	&mfs_flags_tokenizer,
	&mfs_flags_checkpointing,
	&mfs_flags_distributed_init,
	&mfs_flags_logging,
	&mfs_flags_profiling,
	&mfs_flags_straggler,
	&mfs_flags_opentelemetry,
	&mfs_flags_rerun_engine,
	&mfs_flags_rl,
	&mfs_flags_inference,
	&mfs_flags_autoresume,
	&mfs_flags_biencoder,
	&mfs_flags_vision,
	&mfs_flags_logits_distillation,
	&mfs_flags_workload_inspector,
	&mfs_flags_one_logger,
	&mfs_flags_in_process_restart,
	&mfs_flags_ft_package,
	&mfs_flags_msc,
	&mfs_flags_sft,
	&mfs_flags_fault_injector,
	&mfs_flags_derived,
};
const size_t mfs_flag_group_count = sizeof(mfs_flag_groups) / sizeof(mfs_flag_groups[0]);

size_t mfs_flag_count(void)
{
	size_t count = 0;

	for (size_t g = 0; g < mfs_flag_group_count; g++)
		count += mfs_flag_groups[g]->count;
	return count;
}

const struct mfs_flag *mfs_flag_at(size_t number)
{
	for (size_t g = 0; g < mfs_flag_group_count; g++) {
		if (number < mfs_flag_groups[g]->count)
			return &mfs_flag_groups[g]->flags[number];
		number -= mfs_flag_groups[g]->count;
	}
	return NULL;
}

size_t mfs_flag_of_dest(const char *dest)
{
	size_t number = 0;

	for (size_t g = 0; g < mfs_flag_group_count; g++)
		for (size_t i = 0; i < mfs_flag_groups[g]->count; i++, number++)
			if (!strcmp(mfs_flag_groups[g]->flags[i].dest, dest))
				return number;
	return SIZE_MAX;
}

/* ---- spellings ---- */

/* "--PREFIXname" of a dest, with hyphens for underscores. */
static void spell(const char *prefix, const char *dest, char text[MFS_FLAG_SPELLING])
{
	snprintf(text, MFS_FLAG_SPELLING, "--%s%s", prefix, dest);
	for (char *c = text; *c; c++)
		if (*c == '_')
			*c = '-';
}

/* Word i of a list with spaces between. */
static bool word(const char *list, unsigned i, char text[MFS_FLAG_SPELLING])
{
	for (; *list; list += strspn(list, " ")) {
		const size_t len = strcspn(list, " ");

		if (!i--) {
			snprintf(text, MFS_FLAG_SPELLING, "%.*s", (int)len, list);
			return true;
		}
		list += len;
	}
	return false;
}

bool mfs_flag_spelling(const struct mfs_flag *f, unsigned i, char text[MFS_FLAG_SPELLING],
		       bool *ret_on)
{
	static const char *const off[] = {"no-", "disable-"}, *const both[] = {"", "no-"};

	*ret_on = f->kind != MFS_FLAG_OFF;
	if (f->kind == MFS_FLAG_DERIVED)
		return false;
	if (f->kind == MFS_FLAG_SWITCH) {
		char name[MFS_FLAG_SPELLING];

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
	if (i > (f->kind == MFS_FLAG_OFF))
		return false;
	spell(f->kind == MFS_FLAG_OFF ? off[i] : "", f->dest, text);
	return true;
}

static bool is_spelt(const struct mfs_flag *f, const char *text, size_t len, bool *ret_on)
{
	char name[MFS_FLAG_SPELLING];

	for (unsigned i = 0; mfs_flag_spelling(f, i, name, ret_on); i++)
		if (strlen(name) == len && !memcmp(name, text, len))
			return true;
	return false;
}

size_t mfs_flag_of_spelling(const char *text, size_t len, bool *ret_on)
{
	size_t number = 0;

	for (size_t g = 0; g < mfs_flag_group_count; g++)
		for (size_t i = 0; i < mfs_flag_groups[g]->count; i++, number++)
			if (is_spelt(&mfs_flag_groups[g]->flags[i], text, len, ret_on))
				return number;
	return SIZE_MAX;
}

bool mfs_flag_is_choice(const char *choices, const char *value, size_t len)
{
	for (; *choices; choices += *choices == '|') {
		const size_t n = strcspn(choices, "|");

		if (n == len && !memcmp(choices, value, len))
			return true;
		choices += n;
	}
	return false;
}
