/* The vocabulary as the options of views say it. */
#include "formats/model/vocab.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/ckpt/told.h"
#include "formats/model/hf_config.h"
#include "fs/view/view.h"

static bool has_file(const char *dir, const char *name)
{
	char path[PATH_MAX];

	return (size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) < sizeof(path) &&
	       !access(path, F_OK);
}

bool mfs_view_has_tokenizer(const char *dir)
{
	static const char *const names[] = {"tokenizer.json", "tokenizer_config.json",
					    "tokenizer.model", "vocab.json"};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(names); i++)
		if (has_file(dir, names[i]))
			return true;
	return false;
}

bool mfs_view_is_tokenizer(const char *dir)
{
	return mfs_view_has_tokenizer(dir) && !has_file(dir, "config.json");
}

const char *mfs_view_ref(const struct mfs_ckpt *ckpt, const struct mfs_view_options *opt)
{
	return opt->ref ? opt->ref : mfs_ckpt_told_by(ckpt);
}

int mfs_view_true_vocab(const struct mfs_ckpt *ckpt, const struct mfs_view_options *opt,
			uint64_t *ret, struct mfs_error *err)
{
	const char *ref_dir = mfs_view_ref(ckpt, opt);
	struct mfs_vocab_given given = {.size = opt->vocab_size};
	struct mfs_hf_ref *ref = NULL;
	struct mfs_vocab vocab;
	char *tokenizer;
	int rc = mfs_vocab_tokenizer(ckpt, opt->tokenizer ? opt->tokenizer : ref_dir, &tokenizer,
				     err);

	if (!rc && ref_dir && !opt->vocab_size && !mfs_hf_ref_is_source(ref_dir, ckpt))
		rc = mfs_hf_ref_open(ref_dir, &ref, err);
	given.ref = ref;
	given.tokenizer = tokenizer;
	given.by_tokenizer = opt->tokenizer != NULL;
	if (!rc)
		rc = mfs_vocab_decide(ckpt, &given, &vocab, err);
	if (!rc)
		*ret = mfs_vocab_true(&vocab);
	mfs_hf_ref_free(ref);
	free(tokenizer);
	return rc;
}
