#include "fs/gateway/html.h"

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

void mfs_html_begin(struct mfs_reply *a, const char *title)
{
	a->status = 200;
	a->type = "text/html; charset=utf-8";
	mfs_reply_header(a, "Content-Security-Policy",
			 "default-src 'none'; style-src 'unsafe-inline'");
	mfs_buf_adds(&a->text, "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
			       "<meta name=\"viewport\" content=\"width=device-width\">\n<title>");
	mfs_html_text(&a->text, title);
	mfs_buf_adds(&a->text, "</title>\n<style>body{font-family:sans-serif;margin:2em}"
			       "td,th{padding:.2em 1em .2em 0;text-align:left}</style>\n<h1>");
	mfs_html_text(&a->text, title);
	mfs_buf_adds(&a->text, "</h1>\n");
}

void mfs_html_end(struct mfs_reply *a)
{
	mfs_buf_adds(&a->text, "</html>\n");
}
