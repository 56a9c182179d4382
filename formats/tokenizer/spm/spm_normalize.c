#include "formats/tokenizer/spm/spm_i.h"

#include <stdlib.h>

#include "formats/tokenizer/unicode/utf8.h"

#define USERS_MAX 64 /* of the user-defined pieces that match, so many are looked at */

size_t mfs_spm_user(const struct mfs_spm *spm, const char *text, size_t len)
{
	uint32_t node = 0;
	size_t longest = 0;
	unsigned found = 0;

	if (!spm->user_first[(uint8_t)*text])
		return 0;
	for (size_t i = 0; i < len && found < USERS_MAX; i++) {
		if (!mfs_double_array_step(&spm->users, &node, (uint8_t)text[i]))
			break;
		if (spm->users.units[node].value < 0)
			continue;
		longest = i + 1;
		found++;
	}
	return longest;
}

/* What stands for the beginning of a text, and how long that is. */
struct prefix {
	const char *text;
	size_t len, used;
};

/* normalizer.cc: NormalizePrefix(). The text is valid UTF-8. */
static struct prefix prefix_of(const struct mfs_spm *spm, const char *text, size_t len)
{
	struct prefix p = {.text = text};

	p.len = mfs_spm_user(spm, text, len);
	if (p.len) {
		p.used = p.len;
		return p;
	}
	p.text = mfs_charsmap_find(&spm->charsmap, text, len, true, &p.used);
	if (p.text) {
		p.len = strlen(p.text);
		return p;
	}
	p.text = text;
	p.used = mfs_utf8_size(*text);
	/* A user-defined piece may end within a character. */
	if (p.used > len || mfs_utf8_valid(text, p.used) != p.used) {
		p.text = "\xef\xbf\xbd";
		p.len = 3;
		p.used = 1;
		return p;
	}
	p.len = p.used;
	return p;
}

static bool make_room(struct mfs_spm_scratch *s, size_t more)
{
	size_t room = s->room;
	char *text;

	if (more <= room - s->len)
		return true;
	room = (s->len + more) * 2 + 64;
	text = realloc(s->text, room);
	if (!text)
		return false;
	s->text = text;
	s->room = room;
	return true;
}

static void put(struct mfs_spm_scratch *s, const char *text, size_t len)
{
	memcpy(s->text + s->len, text, len);
	s->len += len;
}

static const char *space_of(const struct mfs_spm *spm, size_t *ret_len)
{
	*ret_len = spm->file.escape_whitespaces ? MFS_SPM_SPACE_SIZE : 1;
	return spm->file.escape_whitespaces ? MFS_SPM_SPACE : " ";
}

static void put_spaced(const struct mfs_spm *spm, struct mfs_spm_scratch *s, const char *text,
		       size_t len)
{
	size_t space_len;
	const char *space = space_of(spm, &space_len);

	for (size_t i = 0; i < len; i++)
		if (text[i] == ' ')
			put(s, space, space_len);
		else
			s->text[s->len++] = text[i];
}

/* A run of ASCII that stands for itself; 0: none. */
static size_t plain_run(const struct mfs_spm *spm, const char *text, size_t len)
{
	size_t n = 0;

	while (n < len && !(text[n] & 0x80) && spm->plain[(uint8_t)text[n]])
		n++;
	/* The last one may be the beginning of a rule. */
	if (n && n < len && text[n] & 0x80)
		n--;
	return n;
}

static bool put_space(const struct mfs_spm *spm, struct mfs_spm_scratch *s)
{
	size_t len;
	const char *space = space_of(spm, &len);

	if (!make_room(s, len))
		return false;
	put(s, space, len);
	return true;
}

static void strip_end(const struct mfs_spm *spm, struct mfs_spm_scratch *s)
{
	size_t len;
	const char *space = space_of(spm, &len);

	while (s->len >= len && !memcmp(s->text + s->len - len, space, len))
		s->len -= len;
}

static int put_all(const struct mfs_spm *spm, struct mfs_spm_scratch *s, const char *text,
		   const char *end)
{
	const bool remove = spm->file.remove_extra_whitespaces;
	bool after_space = remove;
	struct prefix p;

	while (text < end) {
		const size_t run = plain_run(spm, text, (size_t)(end - text));

		if (run) {
			if (!make_room(s, run))
				return -ENOMEM;
			put(s, text, run);
			text += run;
			after_space = false;
			continue;
		}
		p = prefix_of(spm, text, (size_t)(end - text));
		text += p.used;
		for (; after_space && p.len && *p.text == ' '; p.len--)
			p.text++;
		if (p.len) {
			if (!make_room(s, p.len * MFS_SPM_SPACE_SIZE))
				return -ENOMEM;
			put_spaced(spm, s, p.text, p.len);
			after_space = p.text[p.len - 1] == ' ';
		}
		after_space &= remove;
	}
	return 0;
}

/* normalizer.cc: Normalize() */
int mfs_spm_normalize(const struct mfs_spm *spm, struct mfs_spm_scratch *s, const char *text,
		      size_t len)
{
	const struct mfs_piece_file *file = &spm->file;
	const char *end = text + len;

	s->len = 0;
	while (file->remove_extra_whitespaces && text < end) {
		const struct prefix p = prefix_of(spm, text, (size_t)(end - text));

		if (p.len != 1 || *p.text != ' ')
			break;
		text += p.used;
	}
	if (text == end)
		return 0;
	if (file->dummy_prefix && !file->whitespace_as_suffix && !put_space(spm, s))
		return -ENOMEM;
	if (put_all(spm, s, text, end))
		return -ENOMEM;
	if (file->remove_extra_whitespaces)
		strip_end(spm, s);
	if (file->dummy_prefix && file->whitespace_as_suffix && !put_space(spm, s))
		return -ENOMEM;
	return 0;
}
