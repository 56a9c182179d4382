/* What the checks of operations share: tensors on the device, and comparisons. */
#ifndef MFK_TESTS_CHECK_I_H
#define MFK_TESTS_CHECK_I_H

#include "kernels/kernels.h"

struct check {
	const struct mfk_backend *backend;
	const struct mfk_ops *ops;
	struct mfk_device *device;
	struct mfk_ctx *ctx;
	uint64_t random;  /* state of the generator */
	const char *name; /* of the check that runs */
	char shape[200];  /* what it looks at: part of messages */
	uint64_t hash;	  /* of all bits of outputs so far */
	int failures;
	struct tensor *made; /* all tensors of this check */
};

/* Elements in the device's memory, with guards before and after, and the same as doubles here. */
struct tensor {
	enum mfk_dtype type;
	int64_t count;
	double *x;    /* values */
	void *p;      /* device */
	char *memory; /* device: where the guard before p begins */
	struct tensor *next;
};

/* One check: it makes tensors, runs an operation and compares. Tensors are freed after it. */
struct check_entry {
	const char *name;
	void (*run)(struct check *c);
};

extern const struct check_entry check_entries[]; /* ends with a NULL */

uint64_t check_random(struct check *c);
double check_uniform(struct check *c); /* [0, 1) */
int64_t check_below(struct check *c, int64_t end);
double check_normal(struct check *c);

/* Nearest value of the type, to even. */
double check_round(enum mfk_dtype type, double x);

/* Philox number n of a seed. */
uint32_t check_number(uint64_t seed, uint64_t n);
/* 1 / (1 - p) if dropout keeps the element of Philox number n, else 0. */
double check_keep(uint64_t seed, uint64_t n, float p);

/* Normal random values times scale, plus mean, rounded to the type. */
struct tensor *check_input(struct check *c, enum mfk_dtype type, int64_t count, double mean,
			   double scale);
/* Given values. */
struct tensor *check_values(struct check *c, enum mfk_dtype type, int64_t count, const double *x);
/* An output: NaNs. */
struct tensor *check_output(struct check *c, enum mfk_dtype type, int64_t count);
/* A copy of integers on the device; freed after the check. */
const int32_t *check_ints(struct check *c, const int32_t *x, int64_t count);
/* Takes t's elements from the device as integers, and looks at its guards. */
void check_fetch_ints(struct check *c, struct tensor *t, int32_t *ret);
/* Zeroed doubles here; freed after the check. */
double *check_doubles(struct check *c, int64_t count);

/* Frees all tensors. */
void check_free(struct check *c);

void check_shape(struct check *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void check_failed(struct check *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Takes t's values from the device, and looks at its guards. */
void check_fetch(struct check *c, struct tensor *t);
/* Fetches t. Each value must be want's, but for its rounding to t's type and for tolerance times
 * the greatest of want (at least floor). */
void check_near(struct check *c, const char *what, struct tensor *t, const double *want,
		double tolerance, double floor);
/* Fetches t. Each value must be exactly want's. */
void check_equal(struct check *c, const char *what, struct tensor *t, const double *want);

extern const enum mfk_dtype check_types[3];
const char *check_type_name(enum mfk_dtype t);

void check_stamp(struct check *c);
void check_gemm(struct check *c);
void check_gemm_grouped(struct check *c);
void check_gemm_tall(struct check *c);
void check_bias_backward(struct check *c);
void check_group_bias(struct check *c);
void check_norm(struct check *c);
void check_qkv(struct check *c);
void check_attention(struct check *c);
void check_attention_cached(struct check *c);
void check_gate(struct check *c);
void check_delta_inputs(struct check *c);
void check_delta_rule(struct check *c);
void check_mla(struct check *c);
void check_route(struct check *c);
void check_balance(struct check *c);
void check_sinkhorn(struct check *c);
void check_drop(struct check *c);
void check_dispatch(struct check *c);
void check_rows(struct check *c);
void check_act(struct check *c);
void check_embedding(struct check *c);
void check_cross_entropy(struct check *c);
void check_log_probs(struct check *c);
void check_policy(struct check *c);
void check_sample(struct check *c);
void check_dropout(struct check *c);
void check_elementwise(struct check *c);
void check_fill_normal(struct check *c);
void check_fill_uniform(struct check *c);
void check_sums(struct check *c);
void check_adamw(struct check *c);
void check_sgd(struct check *c);
void check_momentum(struct check *c);
void check_copy_rows(struct check *c);
void check_quantise(struct check *c);
void check_update_scales(struct check *c);
void check_gemm_eight(struct check *c);
void check_grouped_eight(struct check *c);

#endif
