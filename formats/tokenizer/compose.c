#include "formats/tokenizer/compose.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <utf8proc.h>

#include "formats/tokenizer/newer_characters.h"
#include "formats/tokenizer/utf8.h"

static bool composes(enum mfs_form form)
{
	return form == MFS_NFC || form == MFS_NFKC;
}

/* Whether a character stays as it is whatever follows or precedes it, and nothing moves past it. */
static bool is_inert(uint32_t c, enum mfs_form form)
{
	const utf8proc_property_t *p;

	if (c < 0x80 || (c < 0x300 && form == MFS_NFC))
		return true;
	if (c >= 0xac00 && c < 0xd7a4)
		return composes(form);
	if (c >= 0x1100 && c < 0x1200) /* jamo, which become syllables by arithmetic */
		return !composes(form);
	if (mfs_newer_than_forms(c))
		return true;
	p = utf8proc_get_property((utf8proc_int32_t)c);
	return !p->combining_class && p->decomp_seqindex == UINT16_MAX &&
	       (p->comb_index == UINT16_MAX || !(p->comb_index & 0x8000));
}

static int compose_run(const char *text, size_t len, enum mfs_form form, struct mfs_buf *out,
		       struct mfs_error *err)
{
	utf8proc_option_t options = UTF8PROC_STABLE;
	utf8proc_uint8_t *result;
	utf8proc_ssize_t n;

	options |= composes(form) ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
	if (form == MFS_NFKC || form == MFS_NFKD)
		options |= UTF8PROC_COMPAT;
	n = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)len, &result, options);
	if (n < 0)
		return mfs_fail_nomem(err);
	mfs_buf_add(out, result, (size_t)n);
	free(result);
	return 0;
}

/* Runs of characters that are not inert are composed together with the one before them, which a
 * mark may become a part of. */
int mfs_compose(const char *text, size_t len, enum mfs_form form, struct mfs_buf *out,
		struct mfs_error *err)
{
	size_t done = 0, last = 0, at = 0, size;
	int rc = 0;

	while (at < len && !rc) {
		const uint32_t c = mfs_utf8_get(text + at, &size);

		if (is_inert(c, form)) {
			at += size;
			/* such a one stays out of what is composed */
			last = mfs_newer_than_forms(c) ? at : at - size;
			continue;
		}
		mfs_buf_add(out, text + done, last - done);
		for (at += size; at < len; at += size)
			if (is_inert(mfs_utf8_get(text + at, &size), form))
				break;
		rc = compose_run(text + last, at - last, form, out, err);
		done = last = at;
	}
	mfs_buf_add(out, text + done, len - done);
	return rc;
}
