#include "fs/gateway/web/dataset_row.h"

#include <stdlib.h>
#include <string.h>

#include "fs/cli/text.h"
#include "fs/gateway/call/reply.h"
#include "fs/gateway/repos/facts.h"
#include "fs/gateway/web/html.h"

static uint64_t asked_row(const struct mfs_call *c)
{
	const char *row = mfs_url_query(&c->request->url, "row");

	return row && *row >= '0' && *row <= '9' ? strtoull(row, NULL, 10) : 0;
}

/* A text of anybody's, in its lines. */
static void add_lines(struct mfs_buf *b, const struct mfs_buf *text)
{
	const char *at = text->data, *end = at + text->len;

	while (at < end) {
		const char *next = at;

		while (next < end && *next != '\n' && *next != '\t')
			next++;
		mfs_html_text_part(b, at, (size_t)(next - at));
		if (next < end)
			mfs_buf_add(b, next++, 1);
		at = next;
	}
}

static void add_way(struct mfs_buf *b, bool is_there, uint64_t row, const char *name)
{
	if (is_there)
		mfs_buf_printf(b, "<a href=\"?row=%llu#row\">%s</a>\n", (unsigned long long)row,
			       name);
	else
		mfs_buf_printf(b, "%s\n", name);
}

static void add_ways(struct mfs_buf *b, const struct mfs_row_fact *f)
{
	mfs_buf_adds(b, "<p class=soft>");
	add_way(b, f->row, 0, "First");
	add_way(b, f->row, f->row - 1, "Previous");
	add_way(b, f->row + 1 < f->rows, f->row + 1, "Next");
	add_way(b, f->row + 1 < f->rows, f->rows - 1, "Last");
}

/* The tokenizer that was given cannot be read. */
static void add_why_ids(struct mfs_buf *b, const struct mfs_error *why)
{
	struct mfs_error shown = *why;

	mfs_hide_directories(shown.msg);
	mfs_buf_adds(b, "; they are shown as ids: ");
	mfs_html_text(b, shown.msg);
	mfs_buf_adds(b, "\n");
}

static void add_title(struct mfs_buf *b, const struct mfs_row_fact *f)
{
	char row[MFS_HUMAN], tokens[MFS_HUMAN];

	mfs_buf_printf(b, "<p>Row %s", mfs_grouped(f->row, row));
	mfs_buf_printf(b, " of %s, counted from 0: ", mfs_grouped(f->rows, row));
	mfs_buf_printf(b, "%s tokens", mfs_grouped(f->tokens, tokens));
	if (f->shown < f->tokens)
		mfs_buf_printf(b, ", of which these are the first %s",
			       mfs_grouped(f->shown, tokens));
	if (f->why_ids.code)
		add_why_ids(b, &f->why_ids);
	else
		mfs_buf_adds(
			b, f->is_text ? "\n"
				      : "; <code>-o tokenizer=DIR</code> of the gateway shows them "
					"as text\n");
}

/* A line break after the tag is not the text's own. */
static void add_row(struct mfs_buf *b, const struct mfs_row_fact *f, const struct mfs_buf *text)
{
	add_title(b, f);
	mfs_buf_adds(b, "<pre dir=auto>\n");
	add_lines(b, text);
	mfs_buf_adds(b, "</pre>\n");
}

void mfs_page_add_row(struct mfs_call *c, const char *name)
{
	struct mfs_buf *b = &c->reply->text, text = {0};
	struct mfs_row_fact f = {0};
	struct mfs_error err;
	int rc = mfs_repos_show_row(c->gateway->repos, name, asked_row(c), &text, &f, &err);

	mfs_buf_adds(b, "<h2 id=row>A row</h2>\n");
	if (rc) {
		mfs_hide_directories(err.msg);
		mfs_buf_adds(b, "<p class=warn>");
		mfs_html_text(b, err.msg);
		mfs_buf_adds(b, "\n");
	} else {
		add_row(b, &f, &text);
	}
	if (f.rows)
		add_ways(b, &f);
	mfs_buf_release(&text);
}
