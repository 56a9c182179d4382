#include "trainer/config/help/topics.h"

#include <ctype.h>
#include <string.h>

#include "formats/base/str.h"

static char plain(char c)
{
	return c == '-' || c == '_' ? ' ' : (char)tolower((unsigned char)c);
}

static bool ends_word(char c)
{
	return !isalnum((unsigned char)c);
}

static bool begins_with(const char *text, const char *topic)
{
	for (; *topic; topic++, text++)
		if (plain(*text) != plain(*topic))
			return false;
	return ends_word(*text) || (plain(*text) == 's' && ends_word(text[1]));
}

static bool is_in(const char *topic, const char *text)
{
	for (const char *at = text; *at; at++)
		if ((at == text || ends_word(at[-1])) && begins_with(at, topic))
			return *topic;
	return false;
}

bool mft_topic_has_title(const char *topic, const char *title)
{
	return !topic || is_in(topic, title);
}

bool mft_topic_has_flag(const char *topic, const struct mft_flag_group *group,
			const struct mft_flag *f)
{
	if (topic && mfs_str_is(topic, "used"))
		return f->use == MFT_FLAG_USED;
	return mft_topic_has_title(topic, group->title) || is_in(topic, f->dest);
}
