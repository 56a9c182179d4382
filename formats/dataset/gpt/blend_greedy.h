/*
 * The greedy choice of a blend, sample after sample (blend.h says the rule).
 *
 * Datasets of equal weight are one class. Of those the rule takes the one with the fewest samples,
 * and of these the first: they take turns, in order. So a class has one count, that of its next
 * dataset; its error is that dataset's, and the search goes over classes. Ties between classes go
 * to the lower next dataset.
 */
#ifndef MFS_DATASET_GPT_BLEND_GREEDY_H
#define MFS_DATASET_GPT_BLEND_GREEDY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MFS_BLEND_LANES 8 /* arrays that are searched are padded to a multiple of it */

struct mfs_blend_classes {
	uint32_t datasets, count; /* classes */
	uint32_t padded;	  /* count, rounded up */
	double *weight;		  /* of each class; 0 in the padding */
	double *limit;		  /* samples of each of its datasets; infinite: no limit */
	uint32_t *first;	  /* of each class in members; [count] is the end */
	uint16_t *members;	  /* datasets by class, ascending in each */
};

/* By weight: sizes are NULL, or the samples that there are, equal where weights are. 0 or
 * -ENOMEM. */
int mfs_blend_classes_new(const double *weights, const uint64_t *sizes, uint32_t datasets,
			  struct mfs_blend_classes *ret);
void mfs_blend_classes_release(struct mfs_blend_classes *c);

/* Where the walk is. */
struct mfs_blend_walk {
	const struct mfs_blend_classes *classes;
	uint64_t sample;
	/* Per class: the count of its next dataset (infinite once the class has no more samples,
	 * and in the padding), that dataset's place in members and its number. */
	double *count;
	uint32_t *place;
	uint16_t *next;
	/* Of many classes those are looked at that can be chosen soon (blend_greedy.c). */
	struct mfs_blend_short_list {
		double *weight, *count;
		uint32_t *class;
		uint32_t room;
		double last, margin; /* the last error chosen; how far below it the list goes */
	} list;
	void *memory;
};

int mfs_blend_walk_new(const struct mfs_blend_classes *c, struct mfs_blend_walk *ret);
void mfs_blend_walk_release(struct mfs_blend_walk *w);
/* Samples of each class, all its datasets together: what a checkpoint is made of. */
void mfs_blend_walk_save(const struct mfs_blend_walk *w, uint64_t *ret);
void mfs_blend_walk_restore(struct mfs_blend_walk *w, uint64_t sample, const uint64_t *saved);
/* The next n samples; either array may be NULL. */
void mfs_blend_walk_on(struct mfs_blend_walk *w, uint64_t n, int16_t *ret_dataset,
		       int64_t *ret_sample);
/* Counts the samples that each dataset has got so far: ret[i] is the count of the blend's dataset
 * i. */
void mfs_blend_walk_counts(const struct mfs_blend_walk *w, uint64_t *ret);

#endif
