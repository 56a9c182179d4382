/*
 * `mcorefs diff A B` compares two checkpoints of any formats and layouts, global tensor by global
 * tensor. Private to fs/diff; the command is in command.h.
 *
 * A tensor is different if its shape, its dtype or any element is different (plan/compare.h). Two
 * things are reported as a note and are no difference: rows of the vocabulary that are padding, and
 * norms that only one side stores as weight - 1 (apply_layernorm_1p).
 */
#ifndef MFS_FS_DIFF_DIFF_H
#define MFS_FS_DIFF_DIFF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/ckpt/ckpt.h"
#include "formats/plan/compare.h"
#include "fs/source/root.h"

struct mfs_diff_side {
	const char *path; /* from the command line; borrowed */
	struct mfs_root *root;
	struct mfs_iteration *iteration;
	struct mfs_ckpt *ckpt; /* the iteration's */
	bool is_hf, has_optimizer;
	char why[640];	/* why its optimizer cannot be read; "": it can, or there is none */
	int64_t number; /* iteration in the state; -1: not known */
	double step;	/* Adam's step; -1: not known */
};

/* One tensor that either side has. */
struct mfs_diff_pair {
	const struct mfs_global_tensor *a, *b; /* NULL: only the other side has it */
	bool shapes_differ;		       /* no elements are compared */
	bool add_a, add_b;		       /* this side stores weight - 1: 1 is added */
	uint64_t elements;		       /* to compare, from the first one on */
	struct mfs_comparison found;
};

struct mfs_diff_argument {
	const char *name, *a, *b; /* Megatron's name; both values as text */
};

struct mfs_diff {
	struct mfs_diff_side sides[2];
	bool optimizer;			     /* compare optimizer states too */
	struct mfs_diff_argument *arguments; /* only those that differ */
	uint32_t argument_count;
	const char **notes; /* sentences */
	uint32_t note_count;
	struct mfs_diff_pair *pairs; /* in the order of the model; then the optimizer's */
	uint32_t pair_count;
	struct mfs_arena arena; /* texts, notes, arguments */
	/* the result */
	uint64_t bytes; /* to be read, of both sides */
	uint32_t only_a, only_b, different, equal;
};

/* Fills arguments (args.c). -ENOMEM. */
int mfs_diff_arguments(struct mfs_diff *d, struct mfs_error *err);

/* Fills pairs, and notes about the vocabulary and norms (pairs.c). -ENOMEM. */
int mfs_diff_pair_up(struct mfs_diff *d, struct mfs_error *err);
/* Adds a note. -ENOMEM. */
int mfs_diff_note(struct mfs_diff *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Compares the elements of all pairs on all processors (diff_compare.c). first_only: stops at the
 * first difference. Draws a progress bar if stderr is a terminal. Errors: those of
 * mfs_compare(). */
int mfs_diff_compare(struct mfs_diff *d, bool first_only, struct mfs_error *err);
/* Fills in equal, different, only_a and only_b. */
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

/* Print the result on stdout (diff_text.c, diff_json.c), with at most limit tensors. -ENOMEM. */
void mfs_diff_print(const struct mfs_diff *d, uint64_t limit);
int mfs_diff_print_json(const struct mfs_diff *d, uint64_t limit);

/* The index of the first differing element, as "[17, 5]" and in index. */
const char *mfs_diff_index(const struct mfs_diff_pair *p, uint64_t index[MFS_CKPT_DIMS], char *text,
			   size_t size);
/* Both values of that element, with enough digits to tell them apart. */
void mfs_diff_values(const struct mfs_diff_pair *p, char a[32], char b[32]);
/* "torch_dist tp2-pp2", "hf": format and layout. */
const char *mfs_diff_form(const struct mfs_diff_side *s, char *text, size_t size);

#endif
