#define _GNU_SOURCE
#include "fs/cli/text.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/str.h"

/* Three digits and a unit: 1.24, 12.4, 124. */
static const char *scaled(uint64_t n, const char *const units[], const char *small, char *text)
{
	double v = (double)n;
	unsigned unit = 0;

	if (n < 1000) {
		snprintf(text, MFS_HUMAN, "%u%s", (unsigned)n, small);
		return text;
	}
	/* 999.5 would round up to four digits. */
	while (v >= 999.5 && units[unit]) {
		v /= 1000;
		unit++;
	}
	snprintf(text, MFS_HUMAN, "%.*f %s", v < 9.995 ? 2 : v < 99.95 ? 1 : 0, v, units[unit - 1]);
	return text;
}

const char *mfs_shown(const char *name, char text[MFS_SHOWN])
{
	snprintf(text, MFS_SHOWN, "%s", name);
	mfs_str_printable(text);
	return text;
}

const char *mfs_human_bytes(uint64_t bytes, char text[MFS_HUMAN])
{
	static const char *const units[] = {"kB", "MB", "GB", "TB", "PB", "EB", NULL};

	return scaled(bytes, units, " B", text);
}

const char *mfs_human_count(uint64_t count, char text[MFS_HUMAN])
{
	static const char *const units[] = {"K", "M", "B", "T", "Q", NULL};

	return scaled(count, units, "", text);
}

const char *mfs_grouped(uint64_t n, char text[MFS_HUMAN])
{
	char digits[MFS_HUMAN];
	int len = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)n);
	char *out = text;

	for (int i = 0; i < len; i++) {
		if (i && (len - i) % 3 == 0)
			*out++ = ',';
		*out++ = digits[i];
	}
	*out = '\0';
	return text;
}

const char *mfs_human_seconds(double seconds, char text[MFS_HUMAN])
{
	unsigned long s = seconds < 0	     ? 0
			  : seconds > 359999 ? 359999
					     : (unsigned long)(seconds + 0.5);

	if (s >= 3600)
		snprintf(text, MFS_HUMAN, "%lu:%02lu:%02lu", s / 3600, s / 60 % 60, s % 60);
	else
		snprintf(text, MFS_HUMAN, "%lu:%02lu", s / 60, s % 60);
	return text;
}

const char *mfs_human_time(int64_t ns, char text[MFS_HUMAN])
{
	time_t t = (time_t)(ns / 1000000000);
	struct tm tm;

	if (!ns || !localtime_r(&t, &tm) || !strftime(text, MFS_HUMAN, "%F %T", &tm))
		strcpy(text, "-");
	return text;
}

bool mfs_colours(FILE *to)
{
	const char *term = getenv("TERM"), *no = getenv("NO_COLOR");

	return isatty(fileno(to)) && term && strcmp(term, "dumb") && !(no && *no);
}

unsigned mfs_columns(FILE *to)
{
	struct winsize ws;

	if (ioctl(fileno(to), TIOCGWINSZ, &ws) || !ws.ws_col)
		return 90;
	return ws.ws_col < 60 ? 60 : ws.ws_col > 100 ? 100 : ws.ws_col;
}

size_t mfs_text_width(const char *text)
{
	size_t width = 0;

	for (; *text; text++)
		width += ((unsigned char)*text & 0xc0) != 0x80;
	return width;
}

static const char *colour_start(const struct mfs_frame *frame, enum mfs_colour colour)
{
	static const char *const codes[] = {
		[MFS_PLAIN] = "",	 [MFS_BOLD] = "\033[1m",   [MFS_DIM] = "\033[2m",
		[MFS_RED] = "\033[31m",	 [MFS_GREEN] = "\033[32m", [MFS_YELLOW] = "\033[33m",
		[MFS_CYAN] = "\033[36m",
	};

	return frame->colours ? codes[colour] : "";
}

static const char *colour_end(const struct mfs_frame *frame, enum mfs_colour colour)
{
	return frame->colours && colour != MFS_PLAIN ? "\033[0m" : "";
}

static void repeat(FILE *to, const char *text, size_t n)
{
	while (n--)
		fputs(text, to);
}

/* Bytes of the first columns code points. */
static size_t prefix_bytes(const char *text, size_t columns)
{
	size_t i = 0;

	while (text[i]) {
		if (((unsigned char)text[i] & 0xc0) != 0x80 && !columns--)
			break;
		i++;
	}
	return i;
}

/* Bytes of text for a line of so many columns; it ends at a space if there is one. */
static size_t line_bytes(const char *text, size_t columns)
{
	size_t len = prefix_bytes(text, columns), i;

	if (!text[len])
		return len;
	for (i = len; i > len / 2; i--)
		if (text[i] == ' ')
			return i;
	return len;
}

void mfs_frame_heading(struct mfs_frame *frame, const char *text)
{
	size_t room = frame->width - 6, len = prefix_bytes(text, room), used;

	used = *text ? mfs_text_width(text) : 0;
	used = used > room ? room : used;
	fputs(frame->open ? "├─" : "┌─", frame->to);
	if (*text)
		fprintf(frame->to, " %s%.*s%s ", colour_start(frame, MFS_BOLD), (int)len, text,
			colour_end(frame, MFS_BOLD));
	repeat(frame->to, "─", frame->width - 4 + 1 - used - (*text ? 2 : 0));
	fputs(frame->open ? "┤\n" : "┐\n", frame->to);
	frame->open = true;
}

static void put_line(const struct mfs_frame *frame, const char *label, enum mfs_colour colour,
		     const char *value, size_t len, size_t room)
{
	size_t label_used = mfs_text_width(label);
	size_t label_room = frame->label_width > label_used ? frame->label_width - label_used : 2;
	char *piece = strndup(value, len);
	size_t used = piece ? mfs_text_width(piece) : 0;

	if (piece)
		mfs_str_printable(piece);
	fprintf(frame->to, "│ %s%s%s", colour_start(frame, MFS_DIM), label,
		colour_end(frame, MFS_DIM));
	repeat(frame->to, " ", label_room);
	fprintf(frame->to, "%s%s%s", colour_start(frame, colour), piece ? piece : "",
		colour_end(frame, colour));
	repeat(frame->to, " ", room > used ? room - used : 0);
	fputs(" │\n", frame->to);
	free(piece);
}

void mfs_frame_row(struct mfs_frame *frame, const char *label, enum mfs_colour colour,
		   const char *fmt, ...)
{
	size_t label_width = mfs_text_width(label), room, len;
	char *value, *rest;
	va_list ap;

	/* A label longer than its column is still separated from the value. */
	label_width = label_width < frame->label_width ? frame->label_width : label_width + 2;
	room = frame->width > label_width + 4 ? frame->width - label_width - 4 : 1;
	va_start(ap, fmt);
	if (vasprintf(&value, fmt, ap) < 0)
		value = NULL;
	va_end(ap);
	rest = value;
	do {
		len = rest ? line_bytes(rest, room) : 0;
		put_line(frame, label, colour, rest ? rest : "", len, room);
		label = "";
		room = frame->width - frame->label_width - 4;
		rest = rest ? rest + len : NULL;
		while (rest && *rest == ' ')
			rest++;
	} while (rest && *rest);
	free(value);
}

void mfs_frame_end(struct mfs_frame *frame)
{
	fputs("└", frame->to);
	repeat(frame->to, "─", frame->width - 2);
	fputs("┘\n", frame->to);
	frame->open = false;
}
