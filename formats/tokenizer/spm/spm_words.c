/* Models whose pieces are words, or characters (word_model.cc, char_model.cc). */
#include "formats/tokenizer/spm/spm_i.h"

static int emit_text(const struct mfs_spm *spm, struct mfs_spm_scratch *s, const char *text,
		     size_t len, struct mfs_token_ids *ids)
{
	uint32_t node = 0;
	size_t i = 0;
	int32_t id;

	while (i < len && mfs_double_array_step(&spm->pieces, &node, (uint8_t)text[i]))
		i++;
	id = i < len ? -1 : spm->pieces.units[node].value;
	return mfs_spm_emit(spm, s, id < 0 ? MFS_SPM_UNKNOWN : (uint32_t)id, text, len, ids);
}

/* A word begins at each U+2581. */
int mfs_spm_words(const struct mfs_spm *spm, struct mfs_spm_scratch *s, const char *text,
		  size_t len, struct mfs_token_ids *ids)
{
	size_t begin = 0;
	int rc = 0;

	for (size_t at = 0; at < len && !rc;) {
		at += mfs_spm_char(text + at, len - at);
		if (at < len && !mfs_spm_is_space(text + at, len - at))
			continue;
		rc = emit_text(spm, s, text + begin, at - begin, ids);
		begin = at;
	}
	return rc;
}

int mfs_spm_characters(const struct mfs_spm *spm, struct mfs_spm_scratch *s, const char *text,
		       size_t len, struct mfs_token_ids *ids)
{
	int rc = 0;

	for (size_t at = 0; at < len && !rc;) {
		const size_t user = mfs_spm_user(spm, text + at, len - at);
		const size_t size = user ? user : mfs_spm_char(text + at, len - at);

		rc = emit_text(spm, s, text + at, size, ids);
		at += size;
	}
	return rc;
}
