/*
 * Files of programs that train policies: Oumi (trainer_type MEGATRON_GRPO), verl, SkyRL, NeMo-RL.
 * A table for each says what becomes of a path of the file. The sources of names and defaults:
 * verl 0.9.1, SkyRL of August 2026, NeMo-RL of August 2026, Oumi's core/trainers/megatron.
 *
 * What these programs count in prompts is counted in responses here, and what they count in
 * rollouts in steps.
 */
#ifndef MFT_TRAINER_CONFIG_PARSE_YAML_RL_H
#define MFT_TRAINER_CONFIG_PARSE_YAML_RL_H

#include <stddef.h>

#include "trainer/config/parse/yaml_i.h"

enum mft_yaml_rl_kind {
	MFT_RL_TAKEN,	  /* the flag's value, as it is written */
	MFT_RL_CHOICE,	  /* what words say of it */
	MFT_RL_RESPONSES, /* a number of prompts: times --grpo-group-size */
	MFT_RL_PROMPTS,	  /* a number of responses: divided by --grpo-group-size */
	MFT_RL_STEPS,	  /* a number of rollouts: times the steps of one */
	MFT_RL_ROOM,	  /* tokens of a prompt: --seq-length has those of a response more */
	MFT_RL_OTHERS,	  /* of NeMo-RL: whether a response's own reward is left out of a mean */
	MFT_RL_FIRST,	  /* a list's first item */
	MFT_RL_SECOND,
	MFT_RL_FILE,	  /* a path, or a list of one; of no account where the flag is given */
	MFT_RL_SECTION,	  /* names of a section that is read here (yaml.h) */
	MFT_RL_UNUSED,	  /* without effect here, which a run tells, but for words */
	MFT_RL_ELSEWHERE, /* other code reads it */
};

struct mft_yaml_rl_row {
	/* Dots for mappings in mappings; "a.*": what is in a and in no other row. NULL: the file
	 * has no such thing, and the initial value counts. */
	const char *path;
	enum mft_yaml_rl_kind kind;
	const char *dest; /* or a section */
	/* "THEIRS=OURS|...". Without "=OURS" nothing is set; what is not there is refused. */
	const char *words;
	const char *initial; /* where the file is silent; NULL: nothing is set then */
};

struct mft_yaml_rl_program {
	const char *name;
	const struct mft_yaml_rl_row *rows;
	size_t count;
};

extern const struct mft_yaml_rl_program mft_yaml_rl_oumi, mft_yaml_rl_verl, mft_yaml_rl_skyrl,
	mft_yaml_rl_nemo;

/* Sets what the program's file says, in the order of its rows. What goes to sections is appended to
 * them. -EINVAL: a name that no row has; -ENOTSUP: a value that is not supported. */
int mft_yaml_rl_read(struct mft_yaml_reader *r, const struct mft_yaml_rl_program *program,
		     const struct mfs_yaml_node *file, struct mfs_yaml_node *sections);

#endif
