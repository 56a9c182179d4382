#include "formats/tokenizer/spm/spm_i.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "formats/base/absent.h"
#include "formats/base/str.h"
#include "formats/tokenizer/unicode/utf8.h"

#define PIECE_MAX 8000 /* model_interface.cc: kMaxPieceSize */

struct reader {
	struct mfs_spm *spm;
	const char *name;
	struct mfs_error *err;
};

static bool is_lone_nul(const struct mfs_vocab_piece *piece)
{
	return piece->len == 1 && !*piece->text;
}

/* Pieces that texts can have; the others are reserved. */
static bool is_in_texts(const struct mfs_vocab_piece *piece)
{
	return piece->type == MFS_PIECE_NORMAL || piece->type == MFS_PIECE_USER_DEFINED ||
	       piece->type == MFS_PIECE_UNUSED;
}

/* The byte of "<0x0A>"; -1: it is no such text. */
static int byte_of(const struct mfs_vocab_piece *piece)
{
	int byte = 0;

	if (piece->len != 6 || memcmp(piece->text, "<0x", 3) || piece->text[5] != '>')
		return -1;
	for (size_t i = 3; i < 5; i++) {
		const char c = piece->text[i];

		if ((c < '0' || c > '9') && (c < 'A' || c > 'F'))
			return -1;
		byte = byte << 4 | (int)mfs_str_digit(c);
	}
	return byte;
}

static int refuse(const struct reader *r, uint32_t id, const char *what)
{
	return mfs_fail(r->err, -EINVAL, "%s: piece %u %s", r->name, id, what);
}

static int check_byte(const struct reader *r, uint32_t id)
{
	const int byte = byte_of(&r->spm->file.pieces[id]);

	if (!r->spm->file.byte_fallback)
		return refuse(r, id, "is a byte, and yet byte_fallback is not set");
	if (byte < 0)
		return refuse(r, id, "is a byte; expected a text like <0x0A>");
	r->spm->bytes[byte] = id;
	return 0;
}

/* model_interface.cc: InitializePieces(); sentencepiece_processor.cc: Load() */
static int check_piece(const struct reader *r, uint32_t id)
{
	struct mfs_spm *spm = r->spm;
	struct mfs_vocab_piece *piece = &spm->file.pieces[id];

	if (is_lone_nul(piece) && spm->file.byte_fallback)
		piece->type = MFS_PIECE_UNUSED;
	if (piece->len >= PIECE_MAX)
		return refuse(r, id, "is too long");
	if (is_lone_nul(piece) && piece->type == MFS_PIECE_UNUSED)
		return 0;
	if (memchr(piece->text, 0, piece->len))
		return refuse(r, id, "has a NUL");
	if (spm->file.model == MFS_PIECES_UNIGRAM && !isfinite(piece->score))
		return refuse(r, id, "has no finite score");
	spm->any_unused |= piece->type == MFS_PIECE_UNUSED;
	if (piece->type == MFS_PIECE_UNKNOWN)
		spm->unk = id;
	return piece->type == MFS_PIECE_BYTE ? check_byte(r, id) : 0;
}

static int check_pieces(const struct reader *r)
{
	struct mfs_spm *spm = r->spm;
	int rc = 0;

	for (unsigned i = 0; i < 256; i++)
		spm->bytes[i] = MFS_NO_ID;
	for (uint32_t id = 0; id < spm->file.count && !rc; id++)
		rc = check_piece(r, id);
	for (unsigned i = 0; i < 256 && !rc && spm->file.byte_fallback; i++)
		if (spm->bytes[i] == MFS_NO_ID)
			rc = mfs_fail(r->err, -EINVAL,
				      "%s: byte_fallback is set, but there is no piece <0x%02X>",
				      r->name, i);
	return rc;
}

/* ---- tries ---- */

/* Which pieces go into a trie. */
typedef bool wanted_fn(const struct mfs_spm *spm, const struct mfs_vocab_piece *piece);

static bool is_matched(const struct mfs_spm *spm, const struct mfs_vocab_piece *piece)
{
	/* Unigrams pass unused pieces over; BPE merges them first. */
	return is_in_texts(piece) && !is_lone_nul(piece) &&
	       (piece->type != MFS_PIECE_UNUSED || spm->file.model == MFS_PIECES_BPE);
}

static bool is_user(const struct mfs_spm *spm, const struct mfs_vocab_piece *piece)
{
	(void)spm;
	return piece->type == MFS_PIECE_USER_DEFINED;
}

static bool is_text_piece(const struct mfs_spm *spm, const struct mfs_vocab_piece *piece)
{
	(void)spm;
	return is_in_texts(piece) && !is_lone_nul(piece);
}

/* BPE has one table for all pieces; the other models have one more for those that are reserved. */
static bool is_reserved(const struct mfs_spm *spm, const struct mfs_vocab_piece *piece)
{
	return spm->file.model == MFS_PIECES_BPE ? !is_lone_nul(piece) : !is_in_texts(piece);
}

static int build(const struct reader *r, wanted_fn *wanted, struct mfs_double_array *ret)
{
	const struct mfs_piece_file *file = &r->spm->file;
	struct mfs_trie_key *keys = malloc((file->count + 1) * sizeof(*keys));
	size_t count = 0;
	int32_t twice = 0;
	int rc;

	if (!keys)
		return mfs_fail_nomem(r->err);
	for (uint32_t id = 0; id < file->count; id++)
		if (wanted(r->spm, &file->pieces[id]))
			keys[count++] = (struct mfs_trie_key){file->pieces[id].text,
							      file->pieces[id].len, (int32_t)id};
	rc = mfs_double_array_build(keys, count, ret, &twice);
	free(keys);
	if (rc == -EEXIST)
		return refuse(r, (uint32_t)twice, "is there twice");
	if (rc == -ENOTSUP)
		return mfs_fail(r->err, rc, "%s: its pieces have more than %u bytes", r->name,
				MFS_TRIE_UNITS_MAX);
	return rc ? mfs_fail_nomem(r->err) : 0;
}

/* A trie that nobody needs, but for what is there twice. */
static int check_twice(const struct reader *r, wanted_fn *wanted)
{
	struct mfs_double_array t = {0};
	const int rc = build(r, wanted, &t);

	mfs_double_array_release(&t);
	return rc;
}

static int build_tries(const struct reader *r)
{
	struct mfs_spm *spm = r->spm;
	int rc = check_twice(r, is_reserved);

	if (!rc && spm->file.model != MFS_PIECES_BPE && spm->any_unused)
		rc = check_twice(r, is_text_piece);
	if (!rc)
		rc = build(r, is_matched, &spm->pieces);
	if (!rc)
		rc = build(r, is_user, &spm->users);
	for (uint32_t id = 0; id < spm->file.count; id++)
		if (is_user(spm, &spm->file.pieces[id]))
			spm->user_first[(uint8_t)*spm->file.pieces[id].text] = true;
	return rc;
}

/* ---- scores ---- */

/* unigram_model.cc: GetUserDefinedScore(); a piece of n bytes is better than two of n. */
static float user_score(uint32_t len)
{
	return (float)(0.1 * ((double)len - 1));
}

static int read_scores(const struct reader *r)
{
	struct mfs_spm *spm = r->spm;
	float least = FLT_MAX;
	bool any = false;

	spm->scores = malloc((spm->file.count + 1) * sizeof(*spm->scores));
	if (!spm->scores)
		return mfs_fail_nomem(r->err);
	spm->only_penalties = true;
	for (uint32_t id = 0; id < spm->file.count; id++) {
		const struct mfs_vocab_piece *piece = &spm->file.pieces[id];

		any |= is_text_piece(spm, piece);
		spm->scores[id] = is_user(spm, piece) ? user_score(piece->len) : piece->score;
		if (piece->type != MFS_PIECE_NORMAL)
			continue;
		spm->only_penalties &= piece->score <= 0;
		least = fminf(least, piece->score);
	}
	spm->unk_score = least - 10.0f;
	spm->only_penalties &= spm->unk_score <= 0;
	if (!any && spm->file.model == MFS_PIECES_UNIGRAM)
		return mfs_fail(r->err, -EINVAL, "%s: it has no pieces but reserved ones", r->name);
	return 0;
}

/* ---- where words may end ---- */

/* Notes the places within a piece. False: it is no UTF-8, which could cross any. */
static bool note_cuts(struct mfs_spm *spm, const struct mfs_vocab_piece *piece)
{
	const char *at = piece->text, *end = at + piece->len;
	bool space = mfs_spm_is_space(at, piece->len);

	if (mfs_utf8_valid(at, piece->len) != piece->len)
		return false;
	for (at += mfs_spm_char(at, (size_t)(end - at)); at < end;
	     at += mfs_spm_char(at, (size_t)(end - at))) {
		const bool next = mfs_spm_is_space(at, (size_t)(end - at));

		spm->cuts[2 * space + next] = false;
		space = next;
	}
	return true;
}

static void find_cuts(struct mfs_spm *spm)
{
	bool valid = true;

	/* How an unused piece falls apart depends on the whole text (bpe_model.cc: rev_merge). */
	if (spm->file.model == MFS_PIECES_BPE && spm->any_unused)
		return;
	spm->cuts[MFS_CUT_TEXT_SPACE] = true;
	spm->cuts[MFS_CUT_SPACE_TEXT] = true;
	spm->cuts[MFS_CUT_SPACE_SPACE] = true;
	for (uint32_t id = 0; id < spm->file.count && valid; id++)
		if (is_matched(spm, &spm->file.pieces[id]))
			valid = note_cuts(spm, &spm->file.pieces[id]);
	for (unsigned i = 0; i < 4; i++) {
		spm->cuts[i] = spm->cuts[i] && valid;
		spm->any_cut |= spm->cuts[i];
	}
}

/* ---- characters ---- */

static int read_charsmap(const struct reader *r)
{
	const struct mfs_proto_bytes *b = &r->spm->file.charsmap;
	const int rc =
		mfs_charsmap_init(&r->spm->charsmap, b->at, (size_t)(b->end - b->at), r->err);

	return rc ? mfs_fail_in(r->err, "%s", r->name) : 0;
}

/* Whether a character of ASCII stands for itself wherever the next one is ASCII, too. */
static bool is_plain(const struct mfs_spm *spm, char c)
{
	size_t used;
	char two[2] = {c, 0};

	if (c == ' ' || spm->user_first[(uint8_t)c] ||
	    mfs_charsmap_find(&spm->charsmap, two, 1, true, &used))
		return false;
	for (int next = 1; next < 128; next++) {
		two[1] = (char)next;
		if (mfs_charsmap_leads(&spm->charsmap, two, 2))
			return false;
	}
	return true;
}

static void find_plain(struct mfs_spm *spm)
{
	for (int c = 1; c < 128; c++)
		spm->plain[c] = is_plain(spm, (char)c);
}

int mfs_spm_read(struct mfs_spm *spm, const char *name, struct mfs_error *err)
{
	const struct reader r = {spm, name, err};
	const struct mfs_proto_bytes *denormalizer = &spm->file.denormalizer;
	int rc;

	if (denormalizer->at < denormalizer->end)
		return mfs_fail(err, -ENOTSUP,
				"%s: it has a denormalizer, whose rules are not applied here",
				name);
	spm->unk = MFS_ABSENT;
	rc = check_pieces(&r);
	if (!rc)
		rc = build_tries(&r);
	if (!rc)
		rc = read_scores(&r);
	if (!rc)
		rc = read_charsmap(&r);
	if (rc)
		return rc;
	find_cuts(spm);
	find_plain(spm);
	return 0;
}

void mfs_spm_release(struct mfs_spm *spm)
{
	mfs_piece_file_release(&spm->file);
	mfs_charsmap_release(&spm->charsmap);
	mfs_double_array_release(&spm->pieces);
	mfs_double_array_release(&spm->users);
	free(spm->scores);
}
