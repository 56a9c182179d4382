#include "fs/sums/sums.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/grow.h"
#include "formats/base/str.h"

#define HEX   (2 * MFS_SHA256_BYTES)
#define FIRST "mcorefs-sums "

struct parser {
	const char *at, *end;
	const char *file;
	unsigned long long line;
	struct mfs_sums sums;
	struct mfs_error *err;
};

static int bad(const struct parser *p, const char *what)
{
	return mfs_fail(p->err, -EINVAL, "%s: line %llu: %s", p->file, p->line, what);
}

/* Copies the next line without its newline into the arena. */
static int next_line(struct parser *p, char **ret)
{
	const char *stop = memchr(p->at, '\n', (size_t)(p->end - p->at));

	p->line++;
	if (!stop)
		return bad(p, p->at == p->end ? "the file ends before its last line"
					      : "it is cut short");
	if (memchr(p->at, '\0', (size_t)(stop - p->at)))
		return bad(p, "it has a NUL in it");
	*ret = mfs_arena_strndup(&p->sums.arena, p->at, (size_t)(stop - p->at));
	if (!*ret)
		return mfs_fail_nomem(p->err);
	p->at = stop + 1;
	return 0;
}

/* ---- a line ---- */

/* Decimal digits without a sign, a space or a leading zero: a number has one form. */
static bool number(char **at, uint64_t *ret)
{
	const char *first = *at;
	uint64_t v = 0;

	for (; **at >= '0' && **at <= '9'; ++*at)
		if (mfs_mul_overflows(v, 10, &v) ||
		    mfs_add_overflows(v, (uint64_t)(**at - '0'), &v))
			return false;
	*ret = v;
	return *at != first && (*first != '0' || *at == first + 1);
}

/* "[1024, 64]", "[]" */
static bool shape(char **at, struct mfs_sum *s)
{
	if (*(*at)++ != '[')
		return false;
	while (**at != ']') {
		if (s->ndim == MFS_MAX_DIMS)
			return false;
		if (s->ndim && strncmp(*at, ", ", 2))
			return false;
		*at += s->ndim ? 2 : 0;
		if (!number(at, &s->shape[s->ndim++]))
			return false;
	}
	++*at;
	return true;
}

static bool digest(char **at, struct mfs_sum *s)
{
	unsigned char *bytes;
	char hex[HEX + 1];
	long len = 0;
	bool ok;

	if (strspn(*at, "0123456789abcdef") != HEX)
		return false;
	memcpy(hex, *at, HEX);
	hex[HEX] = '\0';
	bytes = OPENSSL_hexstr2buf(hex, &len);
	ok = bytes && len == MFS_SHA256_BYTES;
	if (ok)
		memcpy(s->sha256, bytes, MFS_SHA256_BYTES);
	OPENSSL_free(bytes);
	*at += HEX;
	return ok;
}

static bool space(char **at)
{
	return *(*at)++ == ' ';
}

static bool dtype(char **at, struct mfs_sum *s)
{
	char name[16] = "";
	size_t len = strcspn(*at, " ");

	if (len >= sizeof(name))
		return false;
	memcpy(name, *at, len);
	*at += len;
	s->dtype = mfs_dtype_from_safetensors(name);
	return s->dtype != MFS_DTYPE_NONE;
}

bool mfs_sums_name_ok(const char *name)
{
	for (const char *c = name; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			return false;
	return *name;
}

static int add_line(struct parser *p, char *line)
{
	struct mfs_sums *all = &p->sums;
	struct mfs_sum s = {0};
	uint64_t elements, bytes;

	if (!digest(&line, &s) || !space(&line))
		return bad(p, "it does not begin with a SHA-256 in lower case and a space");
	if (!dtype(&line, &s) || !space(&line))
		return bad(p, "the element type is none of safetensors'");
	if (!shape(&line, &s) || !space(&line))
		return bad(p, "the shape is not like [1024, 64]");
	if (!mfs_shape_count(s.shape, s.ndim, &elements) ||
	    mfs_mul_overflows(elements, mfs_dtype_size(s.dtype), &bytes))
		return bad(p, "the shape is too large");
	if (!mfs_sums_name_ok(line))
		return bad(p, "the name is empty or has control characters");
	s.name = line;
	if (all->count && strcmp(all->list[all->count - 1].name, s.name) >= 0)
		return bad(p, "names are not sorted, or one is there twice");
	if (mfs_grow(&all->list, all->count))
		return mfs_fail_nomem(p->err);
	all->list[all->count++] = s;
	return 0;
}

/* ---- the file ---- */

static int parse_first(struct parser *p)
{
	char *line;
	int rc = next_line(p, &line);

	if (rc)
		return rc;
	if (strncmp(line, FIRST, sizeof(FIRST) - 1))
		return bad(p, "it is not '" FIRST "1': not a file of mcorefs sum");
	if (strcmp(line + sizeof(FIRST) - 1, "1"))
		return mfs_fail(p->err, -ENOTSUP, "%s: version '%.20s', expected 1", p->file,
				line + sizeof(FIRST) - 1);
	return 0;
}

static int parse_end(struct parser *p, char *line)
{
	uint64_t count;

	line += 4;
	if (!number(&line, &count) || *line || count != p->sums.count)
		return bad(p, "the last line does not count the lines before it");
	return p->at == p->end ? 0 : bad(p, "more follows after the last line");
}

static int parse(struct parser *p)
{
	int rc = parse_first(p);

	while (!rc) {
		char *line;

		rc = next_line(p, &line);
		if (!rc && !strncmp(line, "end ", 4))
			return parse_end(p, line);
		if (!rc)
			rc = add_line(p, line);
	}
	return rc;
}

int mfs_sums_parse(const char *text, size_t len, const char *file, struct mfs_sums *ret,
		   struct mfs_error *err)
{
	struct parser p = {.at = text, .end = text + len, .file = file, .err = err};
	int rc = parse(&p);

	if (rc)
		mfs_sums_release(&p.sums);
	else
		*ret = p.sums;
	return rc;
}

void mfs_sums_release(struct mfs_sums *sums)
{
	mfs_arena_release(&sums->arena);
	free(sums->list);
	*sums = (struct mfs_sums){0};
}

static int by_name(const void *name, const void *sum)
{
	return strcmp(name, ((const struct mfs_sum *)sum)->name);
}

const struct mfs_sum *mfs_sums_find(const struct mfs_sums *sums, const char *name)
{
	return sums->count ? bsearch(name, sums->list, sums->count, sizeof(*sums->list), by_name)
			   : NULL;
}

/* ---- printing ---- */

bool mfs_sums_have_optimizer(const struct mfs_sums *sums)
{
	for (uint32_t i = 0; i < sums->count; i++)
		if (strstr(sums->list[i].name, " of "))
			return true;
	return false;
}

void mfs_sums_print_begin(FILE *to)
{
	fputs(FIRST "1\n", to);
}

void mfs_sums_print(FILE *to, const struct mfs_sum *s)
{
	char hex[HEX + 1], text[24 * MFS_MAX_DIMS];

	mfs_str_hex(s->sha256, MFS_SHA256_BYTES, hex);
	fprintf(to, "%s %s %s %s\n", hex, mfs_dtype_name(s->dtype),
		mfs_shape_text(s->shape, s->ndim, text, sizeof(text)), s->name);
}

void mfs_sums_print_end(FILE *to, uint32_t count)
{
	fprintf(to, "end %u\n", count);
}
