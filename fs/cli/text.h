/* Numbers and tables for a person at a terminal. */
#ifndef MFS_FS_CLI_TEXT_H
#define MFS_FS_CLI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define MFS_HUMAN 32 /* room for any of the short texts below */

/* "16.1 GB", "812 B": decimal units, as on model hubs. Returns text. */
/* A name of a file, or what a file says, as a terminal may get it: mfs_str_printable(). */
#define MFS_SHOWN 1024
const char *mfs_shown(const char *name, char text[MFS_SHOWN]);
const char *mfs_human_bytes(uint64_t bytes, char text[MFS_HUMAN]);
/* A number of parameters: "8.03 B", "671 B", "1.24 M"; below 1000 the number itself. */
const char *mfs_human_count(uint64_t count, char text[MFS_HUMAN]);
/* "8,030,261,248" */
const char *mfs_grouped(uint64_t n, char text[MFS_HUMAN]);
/* "1:02:03", "4:05" */
const char *mfs_human_seconds(double seconds, char text[MFS_HUMAN]);
/* "2026-08-22 14:03:11", local time; "-" for 0. */
const char *mfs_human_time(int64_t ns, char text[MFS_HUMAN]);

/* True if to is a terminal, TERM is not "dumb", and NO_COLOR is not set. */
bool mfs_colours(FILE *to);
/* Columns of the terminal, cut to 60 to 100; 90 if to is no terminal. */
unsigned mfs_columns(FILE *to);
/* Columns that a UTF-8 text takes, one per code point. */
size_t mfs_text_width(const char *text);

enum mfs_colour {
	MFS_PLAIN,
	MFS_BOLD,
	MFS_DIM,
	MFS_RED,
	MFS_GREEN,
	MFS_YELLOW,
	MFS_CYAN,
};

/*
 * A frame. Each call draws its part at once:
 *
 *   ┌─ llama-torch-tp2-pp2 ──────────────┐
 *   │ family      llama                  │
 *   ├─ iterations ───────────────────────┤
 *   └────────────────────────────────────┘
 *
 * Long values are wrapped in their column, at spaces if there are any.
 */
struct mfs_frame {
	FILE *to;
	unsigned width;	      /* columns, borders included */
	unsigned label_width; /* columns of the first column */
	bool colours, open;
};

/* Draws a heading: the first one is the top border, others are dividing lines. text may be "". */
void mfs_frame_heading(struct mfs_frame *frame, const char *text);
/* A line of label and value, either of which may be "". */
void mfs_frame_row(struct mfs_frame *frame, const char *label, enum mfs_colour colour,
		   const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void mfs_frame_end(struct mfs_frame *frame);

#endif
