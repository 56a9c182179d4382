#define _GNU_SOURCE
#include "formats/ckpt/ckpt_build.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/grow.h"
#include "formats/base/uthash.h"

struct intern_entry {
	UT_hash_handle hh;
	char name[];
};

/* ---- life ---- */

int mfs_ckpt_new(const char *dir, unsigned what, const struct mfs_ckpt_format *format,
		 struct mfs_ckpt **ret, struct mfs_error *err)
{
	struct mfs_ckpt *ckpt = calloc(1, sizeof(*ckpt));
	int rc;

	if (!ckpt)
		return mfs_fail_nomem(err);
	ckpt->dir = strdup(dir);
	ckpt->format = format;
	ckpt->what = what;
	rc = ckpt->dir ? mfs_fileset_new(dir, &ckpt->files, err) : mfs_fail_nomem(err);
	return mfs_ckpt_end(ckpt, rc, ret);
}

void mfs_ckpt_free(struct mfs_ckpt *ckpt)
{
	if (!ckpt)
		return;
	HASH_CLEAR(hh, ckpt->names); /* the entries lie in the arena */
	if (ckpt->has_state)
		mfs_torch_file_release(&ckpt->state.archive);
	for (uint32_t i = 0; i < ckpt->optim_file_count; i++)
		mfs_torch_file_release(&ckpt->optim_files[i]);
	mfs_proof_free(ckpt->proof);
	mfs_fileset_free(ckpt->files);
	mfs_arena_release(&ckpt->arena);
	free(ckpt->found);
	free(ckpt->storages);
	free(ckpt->scales);
	free(ckpt->extras);
	free(ckpt->deltas);
	mfs_ckpt_free(ckpt->adapter);
	free(ckpt->chunks);
	free(ckpt->tensors);
	free(ckpt->dir);
	free(ckpt);
}

/* ---- layers ---- */

static int wrong_sublayer(const struct mfs_ckpt *ckpt, const char *file, const char *key,
			  struct mfs_error *err)
{
	return mfs_fail(err, -EINVAL,
			"%s/%s: '%s' is not where the run's pattern of layers has it, expected "
			"attention in a layer before the MLP of each block",
			ckpt->dir, file, key);
}

int mfs_ckpt_block(const struct mfs_ckpt *ckpt, const struct mfs_name *name, const char *file,
		   const char *key, int32_t *layer, struct mfs_error *err)
{
	const bool mlp = name->sublayer == MFS_SUBLAYER_MLP;

	if (!ckpt->args.hybrid_form || !name->layered || *layer < 0)
		return 0;
	if (!strncmp(name->canonical, "mtp.", 4))
		return name->part_of_depth < 0 || name->part_of_depth == (mlp ? 1 : 0)
			       ? 0
			       : wrong_sublayer(ckpt, file, key, err);
	if (name->sublayer != MFS_SUBLAYER_OTHER && *layer % 2 != (mlp ? 1 : 0))
		return wrong_sublayer(ckpt, file, key, err);
	*layer /= 2;
	return 0;
}

int mfs_ckpt_end(struct mfs_ckpt *ckpt, int rc, struct mfs_ckpt **ret)
{
	HASH_CLEAR(hh, ckpt->names);
	if (rc)
		mfs_ckpt_free(ckpt);
	else
		*ret = ckpt;
	return rc;
}

/* ---- what readers give ---- */

const char *mfs_ckpt_intern(struct mfs_ckpt *ckpt, const char *name)
{
	size_t len = strlen(name);
	struct intern_entry *e;

	HASH_FIND(hh, ckpt->names, name, len, e);
	if (e)
		return e->name;
	e = mfs_arena_alloc(&ckpt->arena, sizeof(*e) + len + 1);
	if (!e)
		return NULL;
	memcpy(e->name, name, len);
	HASH_ADD(hh, ckpt->names, name, len, e);
	return e->hh.tbl ? e->name : NULL;
}

int mfs_ckpt_add_storage(struct mfs_ckpt *ckpt, const struct mfs_storage *s, uint32_t *ret,
			 struct mfs_error *err)
{
	if (mfs_grow(&ckpt->storages, ckpt->storage_count))
		return mfs_fail_nomem(err);
	memcpy(&ckpt->storages[ckpt->storage_count], s, sizeof(*s));
	*ret = ckpt->storage_count++;
	return 0;
}

int mfs_ckpt_add_scales(struct mfs_ckpt *ckpt, const struct mfs_ckpt_scales *scales, uint32_t *ret,
			struct mfs_error *err)
{
	if (mfs_grow(&ckpt->scales, ckpt->scales_count))
		return mfs_fail_nomem(err);
	ckpt->scales[ckpt->scales_count++] = *scales;
	*ret = ckpt->scales_count;
	return 0;
}

int mfs_ckpt_add_found(struct mfs_ckpt *ckpt, const struct mfs_found_chunk *found,
		       struct mfs_error *err)
{
	if (mfs_grow(&ckpt->found, ckpt->found_count))
		return mfs_fail_nomem(err);
	ckpt->found[ckpt->found_count++] = *found;
	return 0;
}

int mfs_ckpt_warn(struct mfs_ckpt *ckpt, const char *fmt, ...)
{
	const char **warnings;
	char *text;
	va_list ap;
	int len;

	warnings = mfs_arena_array(&ckpt->arena, ckpt->warning_count + 1, sizeof(*warnings));
	text = mfs_arena_alloc(&ckpt->arena, 512);
	if (!warnings || !text)
		return -ENOMEM;
	va_start(ap, fmt);
	len = vsnprintf(text, 512, fmt, ap);
	va_end(ap);
	(void)len;
	if (ckpt->warning_count)
		memcpy(warnings, ckpt->warnings, ckpt->warning_count * sizeof(*warnings));
	warnings[ckpt->warning_count++] = text;
	ckpt->warnings = warnings;
	return 0;
}

void mfs_ckpt_contiguous(const uint64_t *shape, unsigned ndim, uint64_t *stride)
{
	uint64_t step = 1;

	for (unsigned i = ndim; i-- > 0;) {
		stride[i] = step;
		/* Shapes are checked against their file's size before anything uses a stride. */
		if (mfs_mul_overflows(step, shape[i], &step))
			step = 0;
	}
}

int mfs_ckpt_read_args(struct mfs_ckpt *ckpt, const struct mfs_pickle *doc, mfs_value state,
		       const char *file, struct mfs_error *err)
{
	mfs_value args = mfs_value_get(doc, state, "args");
	int rc;

	if (mfs_value_is_none(doc, args))
		return mfs_fail(
			err, -ENOTSUP,
			"%s/%s: 'args' is missing, which Megatron-LM's own training loop saves, "
			"and there is no run_config.yaml, which Megatron-Bridge writes last (of "
			"NeMo 2, SOURCE is the folder that holds weights/ and context/; of verl "
			"that with dist_ckpt/ and huggingface/; of others, -o ref=HF_DIR says "
			"what model it is)",
			ckpt->dir, file);
	rc = mfs_megatron_args_read(doc, args, &ckpt->arena, &ckpt->args, err);
	return rc ? (mfs_fail_in(err, "%s/%s", ckpt->dir, file), rc) : 0;
}

int mfs_ckpt_check_told(struct mfs_ckpt *ckpt, struct mfs_error *err)
{
	int rc = ckpt->told_by ? ckpt->told->check(ckpt, ckpt->told, err) : 0;

	ckpt->told = NULL; /* it is the caller's, who may drop it now */
	return rc;
}

/* ---- found chunks become tensors ---- */

static int compare_found(const void *a, const void *b)
{
	const struct mfs_found_chunk *x = a, *y = b;
	int order = x->name == y->name ? 0 : strcmp(x->name, y->name);

	if (x->state != y->state)
		return x->state < y->state ? -1 : 1;
	if (order)
		return order;
	if (x->layer != y->layer)
		return x->layer < y->layer ? -1 : 1;
	if (x->expert != y->expert)
		return x->expert < y->expert ? -1 : 1;
	for (unsigned i = 0; i < MFS_CKPT_DIMS; i++)
		if (x->chunk.lo[i] != y->chunk.lo[i])
			return x->chunk.lo[i] < y->chunk.lo[i] ? -1 : 1;
	return 0;
}

static bool same_tensor(const struct mfs_found_chunk *x, const struct mfs_found_chunk *y)
{
	return x->state == y->state && x->name == y->name && x->layer == y->layer &&
	       x->expert == y->expert;
}

static int check_agreement(const struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t,
			   const struct mfs_found_chunk *p, struct mfs_error *err)
{
	char name[MFS_CKPT_NAME_SIZE], a[96], b[96];

	if (t->dtype == p->dtype && t->quantised == !!p->chunk.scales &&
	    t->whole_norm == p->whole_norm && t->ndim == p->ndim &&
	    !memcmp(t->shape, p->shape, sizeof(t->shape)))
		return 0;
	return mfs_fail(err, -EINVAL, "%s: tensor '%s': one rank says %s %s, another %s %s",
			ckpt->dir, mfs_global_tensor_name(t, name, sizeof(name)),
			mfs_dtype_torch(t->dtype), mfs_shape_text(t->shape, t->ndim, a, sizeof(a)),
			mfs_dtype_torch(p->dtype), mfs_shape_text(p->shape, p->ndim, b, sizeof(b)));
}

/* Makes room after the existing tensors and chunks, for those that the found chunks make. */
static int grow_tensors(struct mfs_ckpt *ckpt, uint32_t tensors, struct mfs_error *err)
{
	const size_t chunks = (size_t)ckpt->chunk_count + ckpt->found_count;
	struct mfs_global_tensor *t;
	struct mfs_chunk *c;

	if (chunks > UINT32_MAX)
		return mfs_fail(err, -ENOTSUP, "%s: more than 2^32 chunks", ckpt->dir);
	t = reallocarray(ckpt->tensors, (size_t)ckpt->tensor_count + tensors, sizeof(*t));
	if (t)
		ckpt->tensors = t;
	c = reallocarray(ckpt->chunks, chunks, sizeof(*c));
	if (c)
		ckpt->chunks = c;
	return t && c ? 0 : mfs_fail_nomem(err);
}

static void start_tensor(struct mfs_ckpt *ckpt, const struct mfs_found_chunk *p)
{
	struct mfs_global_tensor *t = &ckpt->tensors[ckpt->tensor_count++];

	*t = (struct mfs_global_tensor){.name = p->name,
					.layer = p->layer,
					.expert = p->expert,
					.dtype = p->dtype,
					.ndim = p->ndim,
					.state = p->state,
					.quantised = p->chunk.scales,
					.whole_norm = p->whole_norm,
					.first_chunk = ckpt->chunk_count};
	memcpy(t->shape, p->shape, sizeof(p->shape));
}

/* Found chunks, in whatever order files gave them, become tensors with their chunks. */
static int make_tensors(struct mfs_ckpt *ckpt, struct mfs_error *err)
{
	const uint32_t count = ckpt->found_count;
	uint32_t tensors = 0;
	int rc = 0;

	qsort(ckpt->found, count, sizeof(*ckpt->found), compare_found);
	for (uint32_t i = 0; i < count; i++)
		tensors += !i || !same_tensor(&ckpt->found[i - 1], &ckpt->found[i]);
	rc = grow_tensors(ckpt, tensors, err);
	for (uint32_t i = 0; i < count && !rc; i++) {
		const struct mfs_found_chunk *p = &ckpt->found[i];

		if (!i || !same_tensor(p - 1, p))
			start_tensor(ckpt, p);
		rc = check_agreement(ckpt, &ckpt->tensors[ckpt->tensor_count - 1], p, err);
		if (rc)
			break;
		ckpt->chunks[ckpt->chunk_count++] = p->chunk;
		ckpt->tensors[ckpt->tensor_count - 1].chunk_count++;
	}
	free(ckpt->found);
	ckpt->found = NULL;
	ckpt->found_count = 0;
	if (rc)
		return rc;
	qsort(ckpt->tensors, ckpt->tensor_count, sizeof(*ckpt->tensors), mfs_global_tensor_order);
	while (ckpt->model_count < ckpt->tensor_count &&
	       ckpt->tensors[ckpt->model_count].state == MFS_STATE_MODEL)
		ckpt->model_count++;
	return 0;
}

/* Whether the norms of queries are over all heads. No argument of Megatron's says so, but
 * their size does. */
static void settle_qk_norms(struct mfs_ckpt *ckpt)
{
	struct mfs_megatron_args *a = &ckpt->args;
	const struct mfs_global_tensor *t = ckpt->tensors;

	for (uint32_t i = 0; i < ckpt->model_count && !a->multi_latent_attention; i++, t++)
		if (!strcmp(t->name, "decoder.layers.self_attention.q_layernorm.weight")) {
			a->qk_norm_wide = a->qk_norm_wide || t->shape[0] > (uint64_t)a->kv_channels;
			return;
		}
}

/* Decides whether norms follow attention and MLP only, with none before them. */
static void settle_post_norms(struct mfs_ckpt *ckpt)
{
	static const char norm[] =
		"decoder.layers.self_attention.linear_proj.post_layernorm.weight";

	if (mfs_ckpt_find(ckpt, norm, 0, -1) &&
	    !mfs_ckpt_find(ckpt, "decoder.layers.input_layernorm.weight", 0, -1))
		ckpt->args.post_norms = true;
}

int mfs_ckpt_group(struct mfs_ckpt *ckpt, struct mfs_error *err)
{
	int rc = ckpt->found_count ? make_tensors(ckpt, err) : 0;

	if (!rc) {
		settle_qk_norms(ckpt);
		settle_post_norms(ckpt);
	}
	if (!rc && !ckpt->model_count)
		rc = mfs_fail(err, -ENODATA, "%s: no model tensors in it", ckpt->dir);
	return rc;
}
