#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/buf.h"
#include "fs/pack/pack.h"

/* The settings that must not change between two runs. The detected format is noted with the
 * place. */
static int settings(const struct mfs_pack_options *opt, struct mfs_buf *ret, struct mfs_error *err)
{
	if (opt->has_eod)
		mfs_buf_printf(ret, "eod=%" PRId64 " ", opt->eod);
	mfs_buf_printf(ret, "vocab=%" PRIu64 " key=", opt->vocab_size);
	mfs_buf_add_json(ret, opt->key);
	return ret->failed ? mfs_fail_nomem(err) : 0;
}

int mfs_pack_note_print(const struct mfs_pack_note *note, const struct mfs_pack_options *opt,
			char text[MFS_INDEXED_NOTE], struct mfs_error *err)
{
	struct mfs_buf given = {0};
	int n, rc = settings(opt, &given, err);

	if (rc)
		return rc;
	n = snprintf(text, MFS_INDEXED_NOTE,
		     "%" PRIu64 " %" PRIu64 " %" PRIu64 " %u %016" PRIx64 " %" PRIu64 " %016" PRIx64
		     " %s %s",
		     note->place.offset, note->place.line, note->place.column,
		     note->place.last ? 1u : 0u, note->mark.hash, note->mark.anchor,
		     note->mark.anchor_hash, mfs_token_format_name(note->place.format), given.data);
	mfs_buf_release(&given);
	return n < MFS_INDEXED_NOTE
		       ? 0
		       : mfs_fail(err, -ENAMETOOLONG, "the key '%s' is too long", opt->key);
}

int mfs_pack_note_parse(const char *text, const struct mfs_pack_options *opt,
			struct mfs_pack_note *ret, struct mfs_error *err)
{
	struct mfs_pack_note n = {0};
	struct mfs_buf given = {0};
	char format[16];
	unsigned last;
	int at = 0, rc = settings(opt, &given, err);
	bool same;

	if (rc)
		return rc;
	if (sscanf(text,
		   "%" SCNu64 " %" SCNu64 " %" SCNu64 " %u %" SCNx64 " %" SCNu64 " %" SCNx64
		   " %15s %n",
		   &n.place.offset, &n.place.line, &n.place.column, &last, &n.mark.hash,
		   &n.mark.anchor, &n.mark.anchor_hash, format, &at) != 8 ||
	    mfs_token_format_parse(format, &n.place.format) || !n.place.column || last > 1 ||
	    n.place.column - 1 > n.place.offset || n.mark.anchor > n.place.offset ||
	    n.mark.anchor % MFS_PACK_BLOCK) {
		mfs_buf_release(&given);
		return mfs_fail(err, -EINVAL, "'%s.journal' is not a journal of mcorefs pack",
				opt->prefix);
	}
	n.mark.position = n.place.offset;
	n.place.last = last;
	same = !strcmp(text + at, given.data) &&
	       (!opt->format || !n.place.format || opt->format == n.place.format);
	mfs_buf_release(&given);
	if (!same)
		return mfs_fail(err, -EINVAL, "'%s' was begun with other options: %s, %s",
				opt->prefix, format, text + at);
	*ret = n;
	return 0;
}
