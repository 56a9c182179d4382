#include "formats/base/yaml_tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

struct anchor {
	const char *name;
	const struct mfs_yaml_node *node;
	struct anchor *before;
};

struct reader {
	yaml_parser_t parser;
	yaml_event_t event; /* the one that is being looked at */
	const char *name, *bytes;
	size_t len;
	struct mfs_arena *arena;
	unsigned flags, nodes;
	struct anchor *anchors; /* of nodes that have ended: no node is in itself */
	struct mfs_error *err;
};

static int fail(struct reader *r, size_t line, const char *what)
{
	return mfs_fail(r->err, -EINVAL, "%s: line %zu: %s", r->name, line + 1, what);
}

/* True if a line, counted from 0, has a tab before its first word. */
static bool begins_with_tab(const struct reader *r, size_t line)
{
	const char *at = r->bytes, *end = r->bytes + r->len;

	for (; line && at; line--) {
		at = memchr(at, '\n', (size_t)(end - at));
		at = at ? at + 1 : NULL;
	}
	while (at && at < end && *at == ' ')
		at++;
	return at && at < end && *at == '\t';
}

/* libyaml names a tab where it looks for one; elsewhere a tab is any character. */
static int fail_syntax(struct reader *r)
{
	const char *problem = r->parser.problem ? r->parser.problem : "not YAML";
	const size_t line = r->parser.problem_mark.line;

	if (strstr(problem, "tab character") || begins_with_tab(r, line))
		problem = "found a tab; YAML takes blanks, not tabs, before a name";
	return fail(r, line, problem);
}

/* The next event. The one before is released. */
static int advance(struct reader *r)
{
	yaml_event_delete(&r->event);
	memset(&r->event, 0, sizeof(r->event));
	if (yaml_parser_parse(&r->parser, &r->event))
		return 0;
	if (r->parser.error == YAML_MEMORY_ERROR)
		return mfs_fail_nomem(r->err);
	return fail_syntax(r);
}

/* Anchor and tag of the node that begins, or an alias's name as the anchor. */
static void marks_of(const yaml_event_t *e, const yaml_char_t **anchor, const yaml_char_t **tag)
{
	*anchor = *tag = NULL;
	switch (e->type) {
	case YAML_SCALAR_EVENT:
		*anchor = e->data.scalar.anchor;
		*tag = e->data.scalar.tag;
		break;
	case YAML_SEQUENCE_START_EVENT:
		*anchor = e->data.sequence_start.anchor;
		*tag = e->data.sequence_start.tag;
		break;
	case YAML_MAPPING_START_EVENT:
		*anchor = e->data.mapping_start.anchor;
		*tag = e->data.mapping_start.tag;
		break;
	case YAML_ALIAS_EVENT:
		*anchor = e->data.alias.anchor;
		break;
	default:
		break;
	}
}

static int read_scalar(struct reader *r, struct mfs_yaml_node *n)
{
	const char *text = (const char *)r->event.data.scalar.value;
	const size_t len = r->event.data.scalar.length;

	if (memchr(text, 0, len))
		return fail(r, r->event.start_mark.line, "a text has a NUL");
	n->quoted = r->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
	n->text = mfs_arena_strndup(r->arena, text, len);
	return n->text ? 0 : mfs_fail_nomem(r->err);
}

static int check_key(struct reader *r, const struct mfs_yaml_node *map,
		     const struct mfs_yaml_node *key)
{
	if (key->kind != MFS_YAML_SCALAR)
		return fail(r, key->line - 1, "a key is no text");
	for (const struct mfs_yaml_node *k = map->first; k != key; k = k->next->next)
		if (!strcmp(k->text, key->text))
			return mfs_fail(r->err, -EINVAL, "%s: line %u: a second '%.80s'", r->name,
					key->line, key->text);
	return 0;
}

static int read_node(struct reader *r, unsigned depth, struct mfs_yaml_node **ret);

static int read_items(struct reader *r, struct mfs_yaml_node *n, yaml_event_type_t end,
		      unsigned depth)
{
	struct mfs_yaml_node **at = &n->first;
	int rc = advance(r);

	for (bool key = true; !rc && r->event.type != end; key = !key) {
		rc = read_node(r, depth + 1, at);
		if (!rc && n->kind == MFS_YAML_MAPPING && key)
			rc = check_key(r, n, *at);
		if (!rc) {
			at = &(*at)->next;
			rc = advance(r);
		}
	}
	return rc;
}

static const char *copy(struct reader *r, const yaml_char_t *text)
{
	return mfs_arena_strndup(r->arena, (const char *)text, strlen((const char *)text));
}

/* The node of the alias's anchor, whose items it shares. */
static int read_alias(struct reader *r, const char *name, struct mfs_yaml_node *n)
{
	const unsigned line = n->line;

	for (const struct anchor *a = r->anchors; a; a = a->before) {
		if (strcmp(a->name, name) != 0)
			continue;
		*n = *a->node;
		n->line = line;
		n->next = NULL;
		return 0;
	}
	return fail(r, line - 1, "an alias of an anchor that has not ended before it");
}

static int add_anchor(struct reader *r, const char *name, const struct mfs_yaml_node *n)
{
	struct anchor *a = mfs_arena_alloc(r->arena, sizeof(*a));

	if (!a)
		return mfs_fail_nomem(r->err);
	*a = (struct anchor){name, n, r->anchors};
	r->anchors = a;
	return 0;
}

static int read_kind(struct reader *r, unsigned depth, const char *anchor, struct mfs_yaml_node *n)
{
	switch (r->event.type) {
	case YAML_ALIAS_EVENT:
		return read_alias(r, anchor, n);
	case YAML_SCALAR_EVENT:
		return read_scalar(r, n);
	case YAML_MAPPING_START_EVENT:
		n->kind = MFS_YAML_MAPPING;
		return read_items(r, n, YAML_MAPPING_END_EVENT, depth);
	default:
		n->kind = MFS_YAML_SEQUENCE;
		return read_items(r, n, YAML_SEQUENCE_END_EVENT, depth);
	}
}

/* The node that begins with the event. The event is then its last. */
static int read_node(struct reader *r, unsigned depth, struct mfs_yaml_node **ret)
{
	const bool alias = r->event.type == YAML_ALIAS_EVENT;
	const size_t line = r->event.start_mark.line;
	const yaml_char_t *anchor, *tag;
	const char *name = NULL;
	struct mfs_yaml_node *n;
	int rc;

	marks_of(&r->event, &anchor, &tag);
	if ((r->flags & MFS_YAML_PLAIN) && (anchor || tag))
		return fail(r, line, "aliases, anchors and tags are not taken");
	if (depth > MFS_YAML_DEPTH)
		return fail(r, line, "more than 16 levels");
	if (++r->nodes > MFS_YAML_NODES)
		return fail(r, line, "more than 20000 values");
	n = mfs_arena_alloc(r->arena, sizeof(*n));
	if (!n || (anchor && !(name = copy(r, anchor))) || (tag && !(n->tag = copy(r, tag))))
		return mfs_fail_nomem(r->err);
	n->line = (unsigned)line + 1;
	*ret = n;
	rc = read_kind(r, depth, name, n);
	return rc || !name || alias ? rc : add_anchor(r, name, n);
}

static int read_document(struct reader *r, struct mfs_yaml_node **ret)
{
	int rc = advance(r); /* the stream's start */

	*ret = NULL;
	if (!rc)
		rc = advance(r);
	if (rc || r->event.type == YAML_STREAM_END_EVENT)
		return rc;
	rc = advance(r);
	if (!rc)
		rc = read_node(r, 0, ret);
	if (!rc)
		rc = advance(r); /* the document's end */
	if (!rc)
		rc = advance(r);
	if (!rc && r->event.type != YAML_STREAM_END_EVENT)
		rc = fail(r, r->event.start_mark.line, "a second document");
	return rc;
}

int mfs_yaml_tree(const char *name, const void *bytes, size_t len, unsigned flags,
		  struct mfs_arena *arena, struct mfs_yaml_node **ret, struct mfs_error *err)
{
	struct reader r = {.name = name,
			   .bytes = bytes,
			   .len = len,
			   .arena = arena,
			   .flags = flags,
			   .err = err};
	struct mfs_yaml_node *root = NULL;
	int rc;

	if (len > MFS_YAML_BYTES)
		return mfs_fail(err, -EINVAL, "%s: expected at most 1 MiB, found %zu bytes", name,
				len);
	if (!yaml_parser_initialize(&r.parser))
		return mfs_fail_nomem(err);
	yaml_parser_set_input_string(&r.parser, bytes, len);
	rc = read_document(&r, &root);
	yaml_event_delete(&r.event);
	yaml_parser_delete(&r.parser);
	if (!rc)
		*ret = root;
	return rc;
}

const struct mfs_yaml_node *mfs_yaml_get(const struct mfs_yaml_node *n, const char *key)
{
	if (!n || n->kind != MFS_YAML_MAPPING)
		return NULL;
	for (const struct mfs_yaml_node *k = n->first; k; k = k->next->next)
		if (!strcmp(k->text, key))
			return k->next;
	return NULL;
}

/* ---- scalars ---- */

static bool is_one_of(const struct mfs_yaml_node *n, const char *const *list)
{
	if (!n || n->kind != MFS_YAML_SCALAR || n->quoted)
		return false;
	for (; *list; list++)
		if (!strcmp(n->text, *list))
			return true;
	return false;
}

bool mfs_yaml_is_null(const struct mfs_yaml_node *n)
{
	static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};

	return is_one_of(n, nulls);
}

bool mfs_yaml_truth(const struct mfs_yaml_node *n, bool *ret)
{
	static const char *const yes[] = {"true", "True", "TRUE", "yes", "Yes",
					  "YES",  "on",	  "On",	  "ON",	 NULL};
	static const char *const no[] = {"false", "False", "FALSE", "no",  "No",
					 "NO",	  "off",   "Off",   "OFF", NULL};

	*ret = is_one_of(n, yes);
	return *ret || is_one_of(n, no);
}

static bool is_plain(const struct mfs_yaml_node *n)
{
	return n && n->kind == MFS_YAML_SCALAR && !n->quoted && *n->text;
}

bool mfs_yaml_int(const struct mfs_yaml_node *n, int64_t *ret)
{
	const char *digits;
	char *end;

	if (!is_plain(n))
		return false;
	digits = n->text;
	digits += *digits == '+' || *digits == '-';
	if (!*digits || digits[strspn(digits, "0123456789")])
		return false;
	errno = 0;
	*ret = strtoll(n->text, &end, 10);
	return !errno;
}

bool mfs_yaml_real(const struct mfs_yaml_node *n, double *ret)
{
	char *end;

	if (!is_plain(n) || strspn(n->text, "0123456789+-.eE") != strlen(n->text))
		return false;
	*ret = strtod(n->text, &end);
	return end != n->text && !*end;
}
