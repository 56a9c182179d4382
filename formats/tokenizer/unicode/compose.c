#include "formats/tokenizer/unicode/compose.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "formats/base/array.h"
#include "formats/tokenizer/unicode/newer_characters.h"
#include "formats/tokenizer/unicode/utf8.h"

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

/* ---- a run ---- */

/* The characters of text, decomposed, of which `to` has room for `room`. Returns how many there
 * are. */
static size_t decompose(const char *text, size_t len, utf8proc_option_t options,
			utf8proc_int32_t *to, size_t room)
{
	size_t count = 0, size;
	int boundclass = 0;

	for (size_t at = 0; at < len; at += size) {
		const uint32_t c = mfs_utf8_get(text + at, &size);
		const size_t left = room > count ? room - count : 0;
		const utf8proc_ssize_t n =
			utf8proc_decompose_char((utf8proc_int32_t)c, left ? to + count : NULL,
						(utf8proc_ssize_t)left, options, &boundclass);

		count += n > 0 ? (size_t)n : 0;
	}
	return count;
}

static uint8_t class_of(utf8proc_int32_t c)
{
	return (uint8_t)utf8proc_get_property(c)->combining_class;
}

/* Sorts by class; those of one class stay in their order. scratch has room for count. */
static void sort_marks(utf8proc_int32_t *at, size_t count, utf8proc_int32_t *scratch)
{
	size_t places[256] = {0}, before = 0;

	for (size_t i = 0; i < count; i++)
		places[class_of(at[i])]++;
	for (size_t k = 0; k < MFS_ARRAY_SIZE(places); k++) {
		const size_t n = places[k];

		places[k] = before;
		before += n;
	}
	for (size_t i = 0; i < count; i++)
		scratch[places[class_of(at[i])]++] = at[i];
	memcpy(at, scratch, count * sizeof(*at));
}

/* The canonical order (UAX #15, D109): marks between two characters that are none stand by their
 * classes. utf8proc_map() swaps neighbours until they do, which takes minutes of a text that
 * consists of marks. */
static void order_marks(utf8proc_int32_t *at, size_t count, utf8proc_int32_t *scratch)
{
	size_t begin = 0;
	uint8_t before = 0;
	bool sorted = true;

	for (size_t i = 0; i <= count; i++) {
		const uint8_t class = i < count ? class_of(at[i]) : 0;

		if (class) {
			sorted &= before <= class;
			before = class;
			continue;
		}
		if (!sorted)
			sort_marks(at + begin, i - begin, scratch);
		begin = i + 1;
		before = 0;
		sorted = true;
	}
}

static int compose_run(const char *text, size_t len, enum mfs_form form, struct mfs_buf *out,
		       struct mfs_error *err)
{
	utf8proc_option_t options = UTF8PROC_STABLE;
	utf8proc_int32_t *made;
	utf8proc_ssize_t n;
	size_t count;

	options |= composes(form) ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
	if (form == MFS_NFKC || form == MFS_NFKD)
		options |= UTF8PROC_COMPAT;
	count = decompose(text, len, options, NULL, 0);
	made = calloc(count + 1, 2 * sizeof(*made)); /* the second half is scratch */
	if (!made)
		return mfs_fail_nomem(err);
	decompose(text, len, options, made, count);
	order_marks(made, count, made + count);
	n = utf8proc_normalize_utf32(made, (utf8proc_ssize_t)count, options);
	for (utf8proc_ssize_t i = 0; i < n; i++)
		mfs_utf8_add(out, (uint32_t)made[i]);
	free(made);
	return n < 0 ? mfs_fail_nomem(err) : 0;
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
