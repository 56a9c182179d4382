/* The vocabulary as the options of views say it. */
#include "formats/model/vocab.h"

#include <stdlib.h>

#include "formats/model/hf_config.h"
#include "fs/view/view.h"

int mfs_view_true_vocab(const struct mfs_ckpt *ckpt, const struct mfs_view_options *opt,
			uint64_t *ret, struct mfs_error *err)
{
	struct mfs_vocab_said said = {.size = opt->vocab_size};
	struct mfs_hf_ref *ref = NULL;
	struct mfs_vocab vocab;
	char *tokenizer;
	int rc = mfs_vocab_tokenizer(ckpt, opt->ref, &tokenizer, err);

	if (!rc && opt->ref && !opt->vocab_size && !mfs_hf_ref_is_source(opt->ref, ckpt))
		rc = mfs_hf_ref_open(opt->ref, &ref, err);
	said.ref = ref;
	said.tokenizer = tokenizer;
	if (!rc)
		rc = mfs_vocab_decide(ckpt, &said, &vocab, err);
	if (!rc)
		*ret = mfs_vocab_true(&vocab);
	mfs_hf_ref_free(ref);
	free(tokenizer);
	return rc;
}
