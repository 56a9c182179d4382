/*
 * `mcorefs diff A B`: two checkpoints, tensor by tensor in Megatron's global coordinates, whatever
 * their formats and layouts. Private to fs/diff; the command is in command.h.
 *
 * A tensor counts as different if its shape, dtype or any element is (plan/compare.h says when
 * elements are). What counts not, and is reported as a note: rows of the vocabulary that are
 * padding, and norms that one side stores less one (apply_layernorm_1p) where the other does not.
 */
#ifndef MFS_FS_DIFF_DIFF_H
#define MFS_FS_DIFF_DIFF_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/ckpt/ckpt.h"
#include "formats/plan/compare.h"
#include "fs/source/root.h"

struct mfs_diff_side {
	const char *path; /* as it was named; borrowed */
	struct mfs_root *root;
	struct mfs_iteration *iteration;
	struct mfs_ckpt *ckpt; /* the iteration's */
	bool is_hf, has_optimizer;
	char why[640];	/* why its optimizer is left out although there may be one; "": it is not */
	int64_t number; /* of the iteration, as the state says; -1: not known */
	double step;	/* of Adam; -1: not known */
};

/* One tensor that either side has. */
struct mfs_diff_pair {
	const struct mfs_global_tensor *a, *b; /* NULL: the other side alone has it */
	bool shapes_differ;		       /* nothing of it is compared */
	bool add_a, add_b;		       /* one is added to what is stored */
	uint64_t elements;		       /* to be compared: from the first on */
	struct mfs_comparison found;
};

struct mfs_diff_argument {
	const char *name, *a, *b; /* Megatron's name, and both values as text */
};

struct mfs_diff {
	struct mfs_diff_side sides[2];
	bool optimizer;			     /* compare it, too */
	struct mfs_diff_argument *arguments; /* that differ */
	uint32_t argument_count;
	const char **notes; /* sentences */
	uint32_t note_count;
	struct mfs_diff_pair *pairs; /* in the order of the model, the optimizer's behind it */
	uint32_t pair_count;
	struct mfs_arena arena; /* texts, notes, arguments */
	/* what the run has found */
	uint64_t bytes; /* of both sides, to be read */
	uint32_t only_a, only_b, different, equal;
};

/* diff_args.c: fills arguments. -ENOMEM. */
int mfs_diff_arguments(struct mfs_diff *d, struct mfs_error *err);

/* diff_pairs.c: fills pairs, and notes on the vocabulary and the norms. -ENOMEM. */
int mfs_diff_pair_up(struct mfs_diff *d, struct mfs_error *err);
/* Adds a sentence. -ENOMEM. */
int mfs_diff_note(struct mfs_diff *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* diff_run.c: compares the pairs' elements on all processors. first_only: stops once anything
 * differs, for those who want to know no more. Draws a progress bar where stderr is a terminal.
 * Errors of reading. */
int mfs_diff_compare(struct mfs_diff *d, bool first_only, struct mfs_error *err);
/* Counts what was found: equal, different, only_a, only_b. */
void mfs_diff_count(struct mfs_diff *d);

static inline bool mfs_diff_pair_differs(const struct mfs_diff_pair *p)
{
	return p->a && p->b &&
	       (p->shapes_differ || p->a->dtype != p->b->dtype || p->found.differing);
}

static inline bool mfs_diff_any(const struct mfs_diff *d)
{
	return d->argument_count || d->only_a || d->only_b || d->different;
}

/* diff_text.c, diff_json.c: what was found, to stdout. At most limit tensors are listed. */
void mfs_diff_print(const struct mfs_diff *d, uint64_t limit);
void mfs_diff_print_json(const struct mfs_diff *d, uint64_t limit);

/* "[17, 5]" of the element that differs first. */
const char *mfs_diff_index(const struct mfs_diff_pair *p, uint64_t index[MFS_CKPT_DIMS], char *text,
			   size_t size);
/* Both values, with as many digits as tell them apart. */
void mfs_diff_values(const struct mfs_diff_pair *p, char a[32], char b[32]);
/* "torch_dist tp2-pp2", "hf": format and layout. */
const char *mfs_diff_form(const struct mfs_diff_side *s, char *text, size_t size);

#endif
