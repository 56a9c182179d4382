#include "formats/base/trace.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE 1024

unsigned mfs_trace_on;

#define NAME(kind, name, about) name,
#define HINT(kind, name, about) " " name " (" about ")"

void mfs_trace_turn(unsigned number, bool on)
{
	mfs_trace_on = on ? mfs_trace_on | 1u << number : mfs_trace_on & ~(1u << number);
}

static void turn_on(const char *word, size_t len)
{
	static const char *const names[] = {MFS_TRACE_KINDS(NAME)};

	for (unsigned i = 0; i < MFS_TRACE_COUNT; i++)
		if (!strncmp(names[i], word, len) && !names[i][len]) {
			mfs_trace_turn(i, true);
			return;
		}
	mfs_trace_line(MFS_TRACE_VARIABLE, "'%.*s' is none of" MFS_TRACE_KINDS(HINT), (int)len,
		       word);
}

void mfs_trace_begin(void)
{
	const char *word = getenv(MFS_TRACE_VARIABLE);

	for (size_t len; word && *word; word += len + (word[len] == ',')) {
		len = strcspn(word, ",");
		if (len)
			turn_on(word, len);
	}
}

void mfs_trace_line(const char *kind, const char *fmt, ...)
{
	char line[LINE];
	size_t len = (size_t)snprintf(line, sizeof(line), "trace: %s: ", kind);
	va_list args;
	int more;

	va_start(args, fmt);
	more = vsnprintf(line + len, sizeof(line) - len - 1, fmt, args);
	va_end(args);
	if (more < 0)
		return;
	len += (size_t)more < sizeof(line) - len - 2 ? (size_t)more : sizeof(line) - len - 2;
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)line[i] < ' ')
			line[i] = '?';
	line[len++] = '\n';
	if (write(STDERR_FILENO, line, len) < 0)
		return; /* nobody reads it */
}
