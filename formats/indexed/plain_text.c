#include "formats/indexed/plain_text.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "formats/io/regular.h"

#define LOOK 4096

#define PACK "mcorefs pack --tokenizer DIR --append-eod PREFIX"

static const struct {
	const char *name, *remedy;
} kinds[] = {
	[MFS_TEXT_NONE] = {"", ""},
	[MFS_TEXT_JSONL] = {"text in JSON lines", PACK " < FILE"},
	[MFS_TEXT_LINES] = {"text", PACK " --separator '\\n' < FILE"},
	[MFS_TEXT_PARQUET] = {"text in Parquet", PACK " FILE"},
};

static bool is_text(const uint8_t *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (bytes[i] < ' ' && !strchr("\t\n\r\f", bytes[i]))
			return false;
	return len > 0;
}

/* Numbers alone are ids, and a word alone is a name. */
static bool has_words(const uint8_t *bytes, size_t len)
{
	bool letter = false;

	for (size_t i = 0; i < len; i++) {
		if (letter && (bytes[i] == ' ' || bytes[i] == '\t'))
			return true;
		letter |= isalpha(bytes[i]) || bytes[i] >= 0x80;
	}
	return false;
}

enum mfs_plain_text_kind mfs_plain_text_of(const uint8_t *bytes, size_t len)
{
	size_t first = 0;

	if (len >= 4 && !memcmp(bytes, "PAR1", 4))
		return MFS_TEXT_PARQUET;
	if (!is_text(bytes, len) || memchr(bytes, 0, len))
		return MFS_TEXT_NONE;
	while (first < len && strchr(" \t\n\r", bytes[first]))
		first++;
	if (first < len && bytes[first] == '{')
		return MFS_TEXT_JSONL;
	return has_words(bytes, len) ? MFS_TEXT_LINES : MFS_TEXT_NONE;
}

enum mfs_plain_text_kind mfs_plain_text_file(const char *path)
{
	uint8_t bytes[LOOK];
	ssize_t n;
	int fd;

	if (mfs_open_regular(AT_FDCWD, path, 0, &fd, NULL))
		return MFS_TEXT_NONE;
	n = pread(fd, bytes, sizeof(bytes), 0);
	close(fd);
	return n > 0 ? mfs_plain_text_of(bytes, (size_t)n) : MFS_TEXT_NONE;
}

const char *mfs_plain_text_name(enum mfs_plain_text_kind kind)
{
	return kinds[kind].name;
}

const char *mfs_plain_text_remedy(enum mfs_plain_text_kind kind)
{
	return kinds[kind].remedy;
}
