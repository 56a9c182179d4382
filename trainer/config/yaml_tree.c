#include "trainer/config/yaml_tree.h"

#include <errno.h>
#include <string.h>
#include <yaml.h>

#include "trainer/config/yaml.h"

struct reader {
	yaml_parser_t parser;
	yaml_event_t event; /* the one that is being looked at */
	const char *name;
	struct mfs_arena *arena;
	unsigned nodes;
	struct mfs_error *err;
};

static int fail(struct reader *r, size_t line, const char *what)
{
	return mfs_fail(r->err, -EINVAL, "%s: line %zu: %s", r->name, line + 1, what);
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
	return fail(r, r->parser.problem_mark.line,
		    r->parser.problem ? r->parser.problem : "not YAML");
}

static bool is_tagged(const yaml_event_t *e)
{
	switch (e->type) {
	case YAML_SCALAR_EVENT:
		return e->data.scalar.anchor || e->data.scalar.tag;
	case YAML_SEQUENCE_START_EVENT:
		return e->data.sequence_start.anchor || e->data.sequence_start.tag;
	case YAML_MAPPING_START_EVENT:
		return e->data.mapping_start.anchor || e->data.mapping_start.tag;
	default:
		return e->type == YAML_ALIAS_EVENT;
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

/* The node that begins with the event. The event is then its last. */
static int read_node(struct reader *r, unsigned depth, struct mfs_yaml_node **ret)
{
	struct mfs_yaml_node *n;
	const size_t line = r->event.start_mark.line;

	if (is_tagged(&r->event))
		return fail(r, line, "aliases, anchors and tags are not taken");
	if (depth > MFS_YAML_DEPTH)
		return fail(r, line, "more than 8 levels");
	if (++r->nodes > MFS_YAML_NODES)
		return fail(r, line, "more than 20000 values");
	n = mfs_arena_alloc(r->arena, sizeof(*n));
	if (!n)
		return mfs_fail_nomem(r->err);
	n->line = (unsigned)line + 1;
	*ret = n;
	if (r->event.type == YAML_SCALAR_EVENT)
		return read_scalar(r, n);
	n->kind = r->event.type == YAML_MAPPING_START_EVENT ? MFS_YAML_MAPPING : MFS_YAML_SEQUENCE;
	return read_items(r, n,
			  n->kind == MFS_YAML_MAPPING ? YAML_MAPPING_END_EVENT
						      : YAML_SEQUENCE_END_EVENT,
			  depth);
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

int mfs_yaml_tree(const char *name, const void *bytes, size_t len, struct mfs_arena *arena,
		  struct mfs_yaml_node **ret, struct mfs_error *err)
{
	struct reader r = {.name = name, .arena = arena, .err = err};
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

/* ---- scalars ---- */

static bool is_one_of(const struct mfs_yaml_node *n, const char *const *list)
{
	if (n->kind != MFS_YAML_SCALAR || n->quoted)
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
