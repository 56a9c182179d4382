/* What the files yaml*.c share: the reader of one file. For them alone. */
#ifndef MFT_TRAINER_CONFIG_PARSE_YAML_I_H
#define MFT_TRAINER_CONFIG_PARSE_YAML_I_H

#include <stdbool.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/base/yaml_tree.h"
#include "trainer/config/value.h"

struct mft_yaml_reader {
	const char *name;
	const struct mfs_yaml_node *root;
	struct mft_flag_values *v;
	struct mfs_arena *arena;
	unsigned words; /* of lists so far; an alias repeats its anchor's */
	unsigned names; /* "${a.b}" so far: each is looked for */
	/* Whether gradients are summed in fp32, by the last section that says it; NULL: none. */
	const struct mfs_yaml_node *fp32_sums;
	struct mfs_error *err;
};

/* ---- yaml.c ---- */

/* -EINVAL with the file's name and the line: "... WHAT 'FOUND'". */
int mft_yaml_fail(struct mft_yaml_reader *r, const struct mfs_yaml_node *n, const char *what,
		  const char *found);
/* Sets the flag of a dest, unless the command line has. key: its name there. on: what true stands
 * for. */
int mft_yaml_set(struct mft_yaml_reader *r, const char *dest, const char *key,
		 const struct mfs_yaml_node *n, bool on);
/* Like mft_yaml_set(), with a value. */
void mft_yaml_set_truth(struct mft_yaml_reader *r, const char *dest, bool truth);
void mft_yaml_set_number(struct mft_yaml_reader *r, const char *dest, int64_t number);
/* True if the command line has set it. */
bool mft_yaml_is_taken(const struct mft_yaml_reader *r, const char *dest);
/* torch.bfloat16 and bfloat16 are bf16; another text is itself. */
const char *mft_yaml_plain_dtype(const char *text);

/* ---- yaml_bridge.c: what Megatron-Bridge says in another form ---- */

/* The word that a Python object is: "torch.nn.functional.silu" of a function that is not called, 5
 * of an enum's member. Another node is itself. */
const struct mfs_yaml_node *mft_yaml_unwrap(const struct mfs_yaml_node *n);
/* The element type of weights: a recipe's name as "bf16_mixed", or a torch.dtype. */
int mft_yaml_precision(struct mft_yaml_reader *r, const struct mfs_yaml_node *n);
/* Before the pairs of a section mixed_precision: what they leave out, if its products are of 8
 * bits. */
int mft_yaml_precision_begin(struct mft_yaml_reader *r, const struct mfs_yaml_node *section);
/* *ret_done: nothing is left to do for the pair. */
int mft_yaml_bridge_pair(struct mft_yaml_reader *r, const char *section,
			 const struct mfs_yaml_node *key, const struct mfs_yaml_node *value,
			 bool *ret_done);
/* A section that no argument stands for. *ret_done: it is one. */
int mft_yaml_bridge_section(struct mft_yaml_reader *r, const struct mfs_yaml_node *key,
			    const struct mfs_yaml_node *value, bool *ret_done);
/* Remembers that a value has no effect here. */
int mft_yaml_unused(struct mft_yaml_reader *r, const char *section, const char *key);

/* ---- yaml_dialects.c ---- */

/* Of a whole file of NeMo-RL, Oumi, verl or SkyRL, what Megatron is told: *root becomes sections
 * that are read here. What is passed over is remembered as without effect. Another file stays as it
 * is. */
int mft_yaml_dialect(struct mft_yaml_reader *r, struct mfs_yaml_node **root);
/* Appends a pair to a mapping, with a copy of the value. Returns the copy; NULL: no memory. */
struct mfs_yaml_node *mft_yaml_append(struct mft_yaml_reader *r, struct mfs_yaml_node *to,
				      const char *name, const struct mfs_yaml_node *value);
/* Puts the values of the file in place of "${a.b}", in a node and below it. */
int mft_yaml_resolve(struct mft_yaml_reader *r, struct mfs_yaml_node *n);

/* ---- yaml_together.c: after all sections ---- */

/* True if a field becomes arguments together with others. */
bool mft_yaml_is_together(const char *section, const char *key);
/* Sets what several fields say together. */
int mft_yaml_together(struct mft_yaml_reader *r);

#endif
