#include "formats/tokenizer/unicode/characters.h"

#include <utf8proc.h>

#include "formats/tokenizer/unicode/newer_characters.h"

bool mfs_is_space(uint32_t c)
{
	if (c < 0x80)
		return c == ' ' || (c >= '\t' && c <= '\r');
	return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
	       c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* Circled and squared letters: So, and yet Other_Alphabetic (PropList.txt). */
static bool is_enclosed_letter(uint32_t c)
{
	return (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
	       (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
}

static bool known_word(uint32_t c)
{
	switch (utf8proc_category((utf8proc_int32_t)c)) {
	case UTF8PROC_CATEGORY_LU:
	case UTF8PROC_CATEGORY_LL:
	case UTF8PROC_CATEGORY_LT:
	case UTF8PROC_CATEGORY_LM:
	case UTF8PROC_CATEGORY_LO:
	case UTF8PROC_CATEGORY_MN:
	case UTF8PROC_CATEGORY_MC:
	case UTF8PROC_CATEGORY_ME:
	case UTF8PROC_CATEGORY_ND:
	case UTF8PROC_CATEGORY_NL:
	case UTF8PROC_CATEGORY_PC:
		return true;
	default:
		return c == 0x200c || c == 0x200d || is_enclosed_letter(c);
	}
}

bool mfs_is_word(uint32_t c)
{
	return known_word(c) ^ !!(mfs_newer_classes(c) & MFS_NEWER_WORD);
}

static bool known_numeric(uint32_t c)
{
	switch (utf8proc_category((utf8proc_int32_t)c)) {
	case UTF8PROC_CATEGORY_ND:
	case UTF8PROC_CATEGORY_NL:
	case UTF8PROC_CATEGORY_NO:
		return true;
	default:
		return false;
	}
}

bool mfs_is_numeric(uint32_t c)
{
	return known_numeric(c) ^ !!(mfs_newer_classes(c) & MFS_NEWER_NUMERIC);
}

static bool known_punctuation(uint32_t c)
{
	if (c < 0x80)
		return c > ' ' && c < 0x7f && !(c >= '0' && c <= '9') && !(c >= 'A' && c <= 'Z') &&
		       !(c >= 'a' && c <= 'z');
	switch (utf8proc_category((utf8proc_int32_t)c)) {
	case UTF8PROC_CATEGORY_PC:
	case UTF8PROC_CATEGORY_PD:
	case UTF8PROC_CATEGORY_PS:
	case UTF8PROC_CATEGORY_PE:
	case UTF8PROC_CATEGORY_PI:
	case UTF8PROC_CATEGORY_PF:
	case UTF8PROC_CATEGORY_PO:
		return true;
	default:
		return false;
	}
}

bool mfs_is_punctuation(uint32_t c)
{
	return known_punctuation(c) ^ !!(mfs_newer_classes(c) & MFS_NEWER_PUNCTUATION);
}

static bool known_nonspacing_mark(uint32_t c)
{
	return utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_MN;
}

bool mfs_is_nonspacing_mark(uint32_t c)
{
	return known_nonspacing_mark(c) ^ !!(mfs_newer_classes(c) & MFS_NEWER_NONSPACING);
}

static bool known_mark(uint32_t c)
{
	const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);

	return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
	       category == UTF8PROC_CATEGORY_ME;
}

bool mfs_is_mark(uint32_t c)
{
	return known_mark(c) ^ !!(mfs_newer_classes(c) & MFS_NEWER_MARK);
}

static bool known_other(uint32_t c)
{
	switch (utf8proc_category((utf8proc_int32_t)c)) {
	case UTF8PROC_CATEGORY_CC:
	case UTF8PROC_CATEGORY_CF:
	case UTF8PROC_CATEGORY_CS:
	case UTF8PROC_CATEGORY_CO:
		return true;
	default:
		return false;
	}
}

bool mfs_is_other(uint32_t c)
{
	return known_other(c) ^ !!(mfs_newer_classes(c) & MFS_NEWER_OTHER);
}

uint32_t mfs_lower(uint32_t c)
{
	const uint32_t newer = c < 0x1c89 ? 0 : mfs_newer_lower(c);

	return newer ? newer : (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
}
