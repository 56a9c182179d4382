#include "formats/tokenizer/unicode/charsmap.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/tokenizer/unicode/utf8.h"

/* Units of the double array (darts-clone: DoubleArrayUnit). */
static bool has_leaf(uint32_t unit)
{
	return unit >> 8 & 1;
}

static uint32_t value(uint32_t unit)
{
	return unit & 0x7fffffff;
}

static uint32_t label(uint32_t unit)
{
	return unit & 0x800000ff;
}

static uint32_t offset(uint32_t unit)
{
	return unit >> 10 << ((unit & 1u << 9) >> 6);
}

int mfs_charsmap_init(struct mfs_charsmap *map, const uint8_t *bytes, size_t len,
		      struct mfs_error *err)
{
	uint32_t size;

	if (!len)
		return 0;
	if (len < 4)
		return mfs_fail(err, -EINVAL, "precompiled_charsmap has %zu bytes", len);
	size = mfs_le32(bytes);
	if (size > len - 4 || size % 4 || !size)
		return mfs_fail(err, -EINVAL,
				"precompiled_charsmap: a table of %u bytes; expected a multiple of "
				"4 of at most %zu",
				size, len - 4);
	map->count = size / 4;
	map->strings_len = len - 4 - size;
	if (mfs_utf8_valid((const char *)bytes + 4 + size, map->strings_len) != map->strings_len)
		return mfs_fail(err, -EINVAL, "precompiled_charsmap: its strings are not UTF-8");
	map->units = malloc(size);
	map->strings = malloc(map->strings_len + 1);
	if (!map->units || !map->strings)
		return mfs_fail_nomem(err);
	for (uint32_t i = 0; i < map->count; i++)
		map->units[i] = mfs_le32(bytes + 4 + 4 * (size_t)i);
	memcpy(map->strings, bytes + 4 + size, map->strings_len);
	map->strings[map->strings_len] = '\0';
	return 0;
}

void mfs_charsmap_release(struct mfs_charsmap *map)
{
	free(map->units);
	free(map->strings);
	*map = (struct mfs_charsmap){0};
}

/* Whether what stands at a place of the strings is valid UTF-8, as they are as a whole. */
static bool begins_character(const struct mfs_charsmap *map, uint32_t place)
{
	return place <= map->strings_len && ((uint8_t)map->strings[place] & 0xc0) != 0x80;
}

const char *mfs_charsmap_find(const struct mfs_charsmap *map, const char *text, size_t len,
			      bool longest, size_t *ret_used)
{
	const char *found = NULL;
	uint32_t at, unit;

	if (!map->count)
		return NULL;
	at = offset(map->units[0]);
	for (size_t i = 0; i < len && text[i]; i++) {
		at ^= (uint8_t)text[i];
		if (at >= map->count || label(map->units[at]) != (uint8_t)text[i])
			break;
		unit = map->units[at];
		at ^= offset(unit);
		if (at >= map->count)
			break;
		if (!has_leaf(unit))
			continue;
		if (!begins_character(map, value(map->units[at])))
			break;
		found = map->strings + value(map->units[at]);
		if (ret_used)
			*ret_used = i + 1;
		if (!longest)
			break;
	}
	return found;
}

bool mfs_charsmap_leads(const struct mfs_charsmap *map, const char *text, size_t len)
{
	uint32_t at;

	if (!map->count)
		return false;
	at = offset(map->units[0]);
	for (size_t i = 0; i < len; i++) {
		at ^= (uint8_t)text[i];
		if (at >= map->count || label(map->units[at]) != (uint8_t)text[i])
			return false;
		at ^= offset(map->units[at]);
	}
	return true;
}
