#include "trainer/ckpt/module_state.h"

#include <errno.h>
#include <string.h>

#include "formats/base/arena.h"
#include "formats/base/str.h"
#include "formats/megatron/write/extra_items.h"
#include "kernels/eight_bits.h"
#include "trainer/model/base/recipe.h"

/* ---- on the host ---- */

/* Scales and histories of both directions, one after the other. */
struct on_host {
	struct mfk_scale *scales[MFS_FP8_DIRECTIONS];
	float *history[MFS_FP8_DIRECTIONS];
};

static const struct mft_scale_table *table(const struct mft_scales *s, enum mfs_fp8_direction d)
{
	return d == MFS_FP8_FORWARD ? &s->forward : &s->backward;
}

static uint64_t scale_bytes(const struct mft_scale_table *t)
{
	return (uint64_t)t->count * sizeof(struct mfk_scale);
}

static uint64_t history_bytes(const struct mft_scales *s, const struct mft_scale_table *t)
{
	return (uint64_t)s->length * (uint64_t)t->count * sizeof(float);
}

uint64_t mft_scales_bytes(const struct mft_scales *s)
{
	uint64_t bytes = 1; /* a stage may have no linears */

	for (enum mfs_fp8_direction d = 0; d < MFS_FP8_DIRECTIONS; d++)
		bytes += scale_bytes(table(s, d)) + history_bytes(s, table(s, d));
	return bytes;
}

static struct on_host find(const struct mft_scales *s, unsigned char *host)
{
	struct on_host ret;

	for (enum mfs_fp8_direction d = 0; d < MFS_FP8_DIRECTIONS; d++) {
		ret.scales[d] = (struct mfk_scale *)host;
		host += scale_bytes(table(s, d));
	}
	for (enum mfs_fp8_direction d = 0; d < MFS_FP8_DIRECTIONS; d++) {
		ret.history[d] = (float *)host;
		host += history_bytes(s, table(s, d));
	}
	return ret;
}

static void copy(const struct mfk_device_ops *device, struct mfk_ctx *ctx, void *host, void *at,
		 uint64_t bytes, bool back)
{
	if (!bytes)
		return;
	if (back)
		device->copy_in(ctx, at, host, bytes);
	else
		device->copy_out(ctx, host, at, bytes);
}

void mft_scales_copy(const struct mft_scales *s, const struct mfk_device_ops *device,
		     struct mfk_ctx *ctx, unsigned char *host, bool back)
{
	const struct on_host at = find(s, host);

	for (enum mfs_fp8_direction d = 0; d < MFS_FP8_DIRECTIONS; d++) {
		const struct mft_scale_table *t = table(s, d);

		copy(device, ctx, at.scales[d], t->scales, scale_bytes(t), back);
		copy(device, ctx, at.history[d], t->history, history_bytes(s, t), back);
	}
}

/* ---- a product's columns ---- */

/* A kind of the state, and the entry of a table. */
struct column {
	enum mfs_fp8_direction direction;
	uint32_t kind;
	int64_t entry;
};

#define COLUMNS 3

static void list_columns(const struct mft_scale_place *p, struct column ret[COLUMNS])
{
	ret[0] = (struct column){MFS_FP8_FORWARD, 0, p->x};
	ret[1] = (struct column){MFS_FP8_FORWARD, 1, p->weight};
	ret[2] = (struct column){MFS_FP8_BACKWARD, 0, p->dy};
}

/* Copies a column out of the host's tables, or into them. state has one product, so that its kinds
 * are its columns. */
static void move(const struct mft_scales *s, const struct on_host *at, const struct column *c,
		 struct mfs_extra_state *state, bool in)
{
	const enum mfs_fp8_direction d = c->direction;
	const uint32_t columns = mfs_extra_state_columns(state, d);
	struct mfk_scale *scale = &at->scales[d][c->entry];

	if (in)
		*scale = (struct mfk_scale){.scale = state->scale[d][c->kind],
					    .inverse = 1.f / state->scale[d][c->kind]};
	else
		state->scale[d][c->kind] = scale->scale;
	for (int64_t i = 0; i < s->length; i++) {
		float *ours = &at->history[d][i * table(s, d)->count + c->entry];
		float *theirs = &state->history[d][i * columns + c->kind];

		*(in ? ours : theirs) = *(in ? theirs : ours);
	}
}

/* host: of mft_scales_copy(). */
static void move_all(const struct mft_scales *s, unsigned char *host, uint32_t param,
		     struct mfs_extra_state *state, bool in)
{
	const struct on_host at = find(s, host);
	struct column columns[COLUMNS];

	list_columns(&s->places[param], columns);
	for (int i = 0; i < COLUMNS; i++)
		move(s, &at, &columns[i], state, in);
}

void mft_module_state_put(const struct mft_scales *scales, unsigned char *host, uint32_t param,
			  struct mfs_extra_state *state)
{
	move_all(scales, host, param, state, true);
}

/* ---- items ---- */

int mft_module_state_new(const struct mft_train_config *config, struct mfs_arena *arena,
			 struct mfs_extra_state *ret, struct mfs_error *err)
{
	struct mft_recipe recipe = {0};

	*ret = (struct mfs_extra_state){0};
	if (!mft_recipe_find(config, &recipe) || !recipe.delayed)
		return 0;
	ret->products = 1;
	ret->length = (uint32_t)config->fp8_amax_history_len;
	ret->margin = config->fp8_margin;
	ret->most_recent = mfs_str_is(config->fp8_amax_compute_algo, "most_recent");
	ret->most[MFS_FP8_FORWARD] = (double)mfk_scaled_most(recipe.type[MFT_X]);
	ret->most[MFS_FP8_BACKWARD] = (double)mfk_scaled_most(recipe.type[MFT_DY]);
	return mfs_extra_state_alloc(ret, arena, err);
}

int mft_module_state_measure(const struct mft_train_config *config, uint64_t *ret,
			     struct mfs_error *err)
{
	struct mfs_arena arena = {0};
	struct mfs_extra_state s;
	struct mfs_buf item = {0};
	int rc = mft_module_state_new(config, &arena, &s, err);

	if (!rc && s.products)
		rc = mfs_extra_item_write(&s, &item, err);
	if (!rc && item.failed)
		rc = mfs_fail_nomem(err);
	*ret = item.len;
	mfs_buf_release(&item);
	mfs_arena_release(&arena);
	return rc;
}

static int write_item(const struct mfs_extra_state *s, unsigned char *to, uint64_t bytes,
		      struct mfs_error *err)
{
	struct mfs_buf item = {0};
	int rc = mfs_extra_item_write(s, &item, err);

	if (!rc && item.failed)
		rc = mfs_fail_nomem(err);
	if (!rc && item.len != bytes)
		rc = mfs_fail(err, -EINVAL, "a module's state has %zu bytes, expected %llu",
			      (size_t)item.len, (unsigned long long)bytes);
	if (!rc)
		memcpy(to, item.data, bytes);
	mfs_buf_release(&item);
	return rc;
}

int mft_module_state_item(const struct mft_train_config *config, const struct mft_params *params,
			  unsigned char *host, uint32_t param, unsigned char *to, uint64_t bytes,
			  struct mfs_error *err)
{
	const struct mft_scales *scales = params->scales;
	struct mfs_arena arena = {0};
	struct mfs_extra_state s;
	int rc = mft_module_state_new(config, &arena, &s, err);

	if (!rc && host && scales->places[param].exists)
		move_all(scales, host, param, &s, false);
	if (!rc)
		rc = write_item(&s, to, bytes, err);
	mfs_arena_release(&arena);
	return rc;
}
