#include "fs/gateway/web/html.h"

#include <string.h>

void mfs_html_text(struct mfs_buf *b, const char *text)
{
	for (; *text; text++) {
		if (strchr("<>&\"'", *text))
			mfs_buf_printf(b, "&#%d;", *text);
		else
			mfs_buf_add(b, text, 1);
	}
}

/* Light or dark, as the reader's machine is. Names may be longer than a phone is wide. */
static const char style[] =
	":root{color-scheme:light dark}"
	"body{font-family:sans-serif;line-height:1.4;margin:1.5em auto;max-width:60em;"
	"padding:0 1em;overflow-wrap:anywhere}"
	"h1{font-size:1.5em}h2{font-size:1.2em;margin-top:1.5em}"
	"table{border-collapse:collapse}"
	"td,th{padding:.3em 1.5em .3em 0;text-align:left;vertical-align:top;"
	"border-bottom:1px solid #8884}"
	"th{font-weight:normal;opacity:.7;overflow-wrap:normal}"
	"td.n{text-align:right;font-variant-numeric:tabular-nums;padding-right:0}"
	"td.i{white-space:nowrap;padding-right:0}small{opacity:.7}"
	".bad{color:#d22;font-weight:bold}";

void mfs_html_begin(struct mfs_reply *a, const char *title)
{
	a->status = 200;
	a->type = "text/html; charset=utf-8";
	mfs_reply_header(a, "Content-Security-Policy",
			 "default-src 'none'; style-src 'unsafe-inline'");
	mfs_buf_adds(&a->text, "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
			       "<meta name=\"viewport\" content=\"width=device-width, "
			       "initial-scale=1\">\n<title>");
	mfs_html_text(&a->text, title);
	mfs_buf_adds(&a->text, "</title>\n<style>");
	mfs_buf_adds(&a->text, style);
	mfs_buf_adds(&a->text, "</style>\n<h1>");
	mfs_html_text(&a->text, title);
	mfs_buf_adds(&a->text, "</h1>\n");
}

void mfs_html_end(struct mfs_reply *a)
{
	mfs_buf_adds(&a->text, "</html>\n");
}
