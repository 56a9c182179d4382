#include "formats/ckpt/language_part.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "formats/ckpt/ckpt_build.h"

/* A module of GPTModel below another. Before core there was language_model.encoder. */
#define BELOW "language_model.decoder."

static bool looks_like_one(const char *const *names, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (strstr(names[i], BELOW))
			return true;
	return false;
}

/* The first name that the family does not know; NULL: it knows all. */
static const char *unknown_name(const struct mfs_ckpt_part *part, const char *const *names,
				uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (!mfs_prefix_find(part->names, names[i]))
			return names[i];
	return NULL;
}

static const char *provider_of(const struct mfs_ckpt *ckpt)
{
	return ckpt->args.provider ? ckpt->args.provider : "Megatron-LM's LLaVAModel";
}

/* *ret_why: what the last candidate does not know. */
static const struct mfs_ckpt_part *find_part(const struct mfs_ckpt *ckpt, const char *const *names,
					     uint32_t count, const char **ret_why)
{
	const struct mfs_ckpt_part *part;

	*ret_why = NULL;
	for (uint32_t i = 0; ckpt->parts && (part = ckpt->parts->candidate(ckpt->args.provider, i));
	     i++) {
		*ret_why = unknown_name(part, names, count);
		if (!*ret_why)
			return part;
	}
	return NULL;
}

static int refuse_unknown(const struct mfs_ckpt *ckpt, const char *why, struct mfs_error *err)
{
	const char *near = ckpt->parts && ckpt->args.provider
				   ? ckpt->parts->nearest(ckpt->args.provider)
				   : NULL;

	if (why)
		return mfs_fail(err, -ENOTSUP,
				"%s: a vision-language model (%.80s), but its family's file does "
				"not say what tensor '%.160s' is of",
				ckpt->dir, provider_of(ckpt), why);
	return mfs_fail(err, -ENOTSUP,
			"%s: a vision-language model (%.80s), and no family's file says which "
			"tensors are its language model's%s%s",
			ckpt->dir, provider_of(ckpt), near ? "; the nearest is of " : "",
			near ? near : "");
}

/* All names are the family's, by find_part(). */
static int check_names(const struct mfs_ckpt *ckpt, const char *const *names, uint32_t count,
		       struct mfs_prefixes *seen, struct mfs_error *err)
{
	const struct mfs_prefix *a, *b;

	*seen = (struct mfs_prefixes){.table = ckpt->part->names};
	for (uint32_t i = 0; i < count; i++)
		mfs_prefixes_see(seen, names[i]);
	if (!mfs_prefixes_clash(seen, &a, &b))
		return 0;
	return mfs_fail(err, -EINVAL, MFS_PART_CLASH, ckpt->dir, a->from, b->from,
			ckpt->part->family);
}

static int settle(struct mfs_ckpt *ckpt, const char *const *names, uint32_t count,
		  struct mfs_error *err)
{
	const struct mfs_ckpt_part *part = ckpt->part;
	struct mfs_megatron_args *a = &ckpt->args;
	struct mfs_prefixes seen;
	int rc = check_names(ckpt, names, count, &seen, err);

	if (rc)
		return rc;
	if (!(ckpt->what & MFS_CKPT_LANGUAGE))
		return mfs_fail(err, -ENOTSUP, MFS_PART_REFUSAL, ckpt->dir, part->family,
				provider_of(ckpt), seen.others, seen.all, part->shown);
	if (part->mrope && a->position_embedding_type &&
	    !strcmp(a->position_embedding_type, "mrope"))
		a->position_embedding_type = "rope";
	a->hf_family = part->only;
	a->provider = part->provider;
	ckpt->language = true;
	if (mfs_ckpt_warn(ckpt, MFS_PART_NOTE, part->family, seen.others, seen.all))
		return mfs_fail_nomem(err);
	return 0;
}

int mfs_ckpt_choose_part(struct mfs_ckpt *ckpt, const char *const *names, uint32_t count,
			 struct mfs_error *err)
{
	const char *why;

	if (!looks_like_one(names, count))
		return ckpt->what & MFS_CKPT_LANGUAGE
			       ? mfs_fail(err, -EINVAL,
					  "%s: part=language: no tensor's name has '" BELOW
					  "' in it: this is no vision-language model",
					  ckpt->dir)
			       : 0;
	ckpt->part = find_part(ckpt, names, count, &why);
	return ckpt->part ? settle(ckpt, names, count, err) : refuse_unknown(ckpt, why, err);
}

const char *mfs_ckpt_part_name(const struct mfs_ckpt *ckpt, const char *name, char *text,
			       uint32_t size)
{
	const struct mfs_prefix *p;

	if (!ckpt->part)
		return name;
	p = mfs_prefix_find(ckpt->part->names, name);
	if (!p || !p->to)
		return NULL;
	mfs_prefix_replace(p, name, text, size);
	return text;
}
