#define _GNU_SOURCE
#include "fs/gateway/gateway_config.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/str.h"
#include "formats/base/yaml_tree.h"
#include "formats/io/slurp.h"
#include "fs/cli/option_rows.h"

void mfs_serve_config_init(struct mfs_serve_config *c)
{
	*c = (struct mfs_serve_config){0};
	c->end = &c->first;
}

void mfs_serve_config_release(struct mfs_serve_config *c)
{
	while (c->first) {
		struct mfs_serve_source *s = c->first;

		c->first = s->next;
		mfs_options_release(&s->options);
		free(s);
	}
	mfs_proxies_release(&c->proxies);
	mfs_arena_release(&c->arena);
}

bool mfs_serve_config_is(const char *argument)
{
	return mfs_str_ends(argument, ".yaml") || mfs_str_ends(argument, ".yml");
}

static int add_source(struct mfs_serve_config *c, const char *name, const char *source,
		      const char *options, struct mfs_serve_source **ret, struct mfs_error *err)
{
	struct mfs_serve_source *s = calloc(1, sizeof(*s));
	int rc;

	*ret = s;
	if (!s)
		return mfs_fail_nomem(err);
	s->name = name;
	s->source = source;
	*c->end = s;
	c->end = &s->next;
	rc = options ? mfs_options_parse_o(options, &s->options, err) : 0;
	s->options.view.data = &s->options.data;
	return rc;
}

int mfs_serve_config_add(struct mfs_serve_config *c, const char *name, const char *source,
			 const char *options, struct mfs_error *err)
{
	struct mfs_serve_source *s;

	return add_source(c, name, source, options, &s, err);
}

static int add_link(struct mfs_serve_config *c, const char *dir, size_t len, struct mfs_error *err)
{
	struct mfs_serve_link *l = mfs_arena_alloc(&c->arena, sizeof(*l));

	if (!l || !(l->dir = mfs_arena_strndup(&c->arena, dir, len)))
		return mfs_fail_nomem(err);
	l->next = c->links;
	c->links = l;
	return 0;
}

int mfs_serve_config_add_links(struct mfs_serve_config *c, const char *dirs, struct mfs_error *err)
{
	int rc = 0;

	while (*dirs && !rc) {
		const size_t len = strcspn(dirs, ":");

		rc = len ? add_link(c, dirs, len, err) : 0;
		dirs += len + (dirs[len] == ':');
	}
	return rc;
}

/* ---- options ---- */

int mfs_serve_options_check(const struct mfs_options *opt, bool whole, struct mfs_error *err)
{
	if (opt->remount)
		return mfs_fail(err, -EINVAL, "option 'remount' is refused: %s",
				mfs_option_of_mounts);
	for (const char *at = NULL; (at = mfs_option_next_setting(opt, at));) {
		const struct mfs_option_row *row = mfs_option_find(at);

		if (row->gateway && (row->gateway != mfs_option_of_process || !whole))
			return mfs_fail(err, -EINVAL, "option '%s' is refused: %s", row->name,
					row->gateway);
	}
	return 0;
}

const char *mfs_serve_options_of_sources(const struct mfs_options *opt)
{
	for (const char *at = NULL; (at = mfs_option_next_setting(opt, at));) {
		const struct mfs_option_row *row = mfs_option_find(at);

		if (!row->gateway && row->of != MFS_OPTION_OF_PROGRAM)
			return at;
	}
	return NULL;
}

/* ---- the file ---- */

struct reader {
	struct mfs_serve_config *c;
	const char *name;
};

static int wrong(const struct reader *r, const struct mfs_yaml_node *n, struct mfs_error *err,
		 const char *what)
{
	return mfs_fail(err, -EINVAL, "%s:%u: %s", r->name, n->line, what);
}

static int take_text(const struct reader *r, const struct mfs_yaml_node *key,
		     const struct mfs_yaml_node *value, const char **ret, struct mfs_error *err)
{
	if (value->kind != MFS_YAML_SCALAR || !*value->text)
		return mfs_fail(err, -EINVAL, "%s:%u: '%.100s' takes a text", r->name, key->line,
				key->text);
	*ret = value->text;
	return 0;
}

static int take_number(const struct reader *r, const struct mfs_yaml_node *key,
		       const struct mfs_yaml_node *value, unsigned *ret, struct mfs_error *err)
{
	int64_t n;

	if (!mfs_yaml_int(value, &n) || n < 1 || n > 1000000)
		return mfs_fail(err, -EINVAL, "%s:%u: '%.100s' takes a number from 1 to 1000000",
				r->name, key->line, key->text);
	*ret = (unsigned)n;
	return 0;
}

static int take_limits(const struct reader *r, const struct mfs_yaml_node *n, struct mfs_error *err)
{
	struct mfs_serve_config *c = r->c;
	const struct {
		unsigned *value;
		const char *name;
	} limits[] = {
		{&c->limits.connections, "connections"},
		{&c->limits.per_address, "per_address"},
		{&c->limits.idle_seconds, "idle_seconds"},
		{&c->limits.stall_seconds, "stall_seconds"},
		{&c->limits.header_bytes, "header_bytes"},
		{&c->open, "open"},
		{&c->grace_seconds, "grace_seconds"},
		{&c->url_seconds, "url_seconds"},
	};
	const size_t count = MFS_ARRAY_SIZE(limits);
	int rc = 0;

	if (n->kind != MFS_YAML_MAPPING)
		return wrong(r, n, err, "limits are NAME: NUMBER");
	for (const struct mfs_yaml_node *k = n->first; k && !rc; k = k->next->next) {
		size_t i = 0;

		while (i < count && strcmp(limits[i].name, k->text))
			i++;
		rc = i < count ? take_number(r, k, k->next, limits[i].value, err)
			       : mfs_fail(err, -EINVAL, "%s:%u: '%.100s' is no limit", r->name,
					  k->line, k->text);
	}
	return rc;
}

static int take_repository(const struct reader *r, const struct mfs_yaml_node *key,
			   const struct mfs_yaml_node *value, struct mfs_error *err)
{
	const char *source = NULL, *options = NULL;
	struct mfs_serve_source *added;
	int rc = 0;

	if (value->kind == MFS_YAML_SCALAR)
		rc = take_text(r, key, value, &source, err);
	else if (value->kind != MFS_YAML_MAPPING)
		return wrong(r, value, err,
			     "a repository is NAME: SOURCE, or has source and options");
	for (const struct mfs_yaml_node *k = value->first; k && !rc; k = k->next->next) {
		if (!strcmp(k->text, "source"))
			rc = take_text(r, k, k->next, &source, err);
		else if (!strcmp(k->text, "options"))
			rc = take_text(r, k, k->next, &options, err);
		else
			rc = mfs_fail(err, -EINVAL,
				      "%s:%u: a repository has source and options, not '%.100s'",
				      r->name, k->line, k->text);
	}
	if (!rc && !source)
		rc = wrong(r, key, err, "the repository has no source");
	if (!rc)
		rc = add_source(r->c, key->text, source, options, &added, err);
	return rc ? rc : mfs_serve_options_check(&added->options, false, err);
}

static int take_repositories(const struct reader *r, const struct mfs_yaml_node *n,
			     struct mfs_error *err)
{
	int rc = 0;

	if (n->kind != MFS_YAML_MAPPING)
		return wrong(r, n, err, "repositories are ORG/NAME: SOURCE");
	for (const struct mfs_yaml_node *k = n->first; k && !rc; k = k->next->next) {
		rc = take_repository(r, k, k->next, err);
		if (rc && err && !strstr(err->msg, r->name))
			mfs_fail_in(err, "%s:%u", r->name, k->line);
	}
	return rc;
}

typedef int take_fn(const struct reader *r, const struct mfs_yaml_node *key,
		    const struct mfs_yaml_node *value, struct mfs_error *err);

static int take_proxy(const struct reader *r, const struct mfs_yaml_node *key,
		      const struct mfs_yaml_node *value, struct mfs_error *err)
{
	const char *text;
	int rc = take_text(r, key, value, &text, err);

	if (!rc && (rc = mfs_proxies_add(&r->c->proxies, text, err)))
		mfs_fail_in(err, "%s:%u", r->name, value->line);
	return rc;
}

static int take_link(const struct reader *r, const struct mfs_yaml_node *key,
		     const struct mfs_yaml_node *value, struct mfs_error *err)
{
	const char *text;
	int rc = take_text(r, key, value, &text, err);

	return rc ? rc : add_link(r->c, text, strlen(text), err);
}

/* One, or a list of them. */
static int take_each(const struct reader *r, const struct mfs_yaml_node *key, take_fn *take,
		     struct mfs_error *err)
{
	const struct mfs_yaml_node *value = key->next;
	int rc = 0;

	if (value->kind != MFS_YAML_SEQUENCE)
		return take(r, key, value, err);
	for (const struct mfs_yaml_node *n = value->first; n && !rc; n = n->next)
		rc = take(r, key, n, err);
	return rc;
}

#define LISTENER_TEXT(listener, key, address, title) {&c->listen[MFS_LISTENER_##listener], key},
#define LISTENER_KEY(listener, key, address, title)  key ", "
#define LISTENER_KEYS				     MFS_LISTENER_ROWS(LISTENER_KEY)

static int take_key(const struct reader *r, const struct mfs_yaml_node *key, struct mfs_error *err)
{
	struct mfs_serve_config *c = r->c;
	const struct {
		const char **value, *name;
	} texts[] = {
		/* clang-format off */
		MFS_LISTENER_ROWS(LISTENER_TEXT)
		{&c->tokens, "tokens"},		  {&c->access_log, "access_log"},
		{&c->certificate, "certificate"}, {&c->key, "key"},
		{&c->data_node, "data_node"},	  {&c->url_secret, "url_secret"},
		/* clang-format on */
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(texts); i++)
		if (!strcmp(texts[i].name, key->text))
			return take_text(r, key, key->next, texts[i].value, err);
	if (!strcmp(key->text, "trusted_proxies"))
		return take_each(r, key, take_proxy, err);
	if (!strcmp(key->text, "links"))
		return take_each(r, key, take_link, err);
	if (!strcmp(key->text, "limits"))
		return take_limits(r, key->next, err);
	if (!strcmp(key->text, "repositories"))
		return take_repositories(r, key->next, err);
	return mfs_fail(err, -EINVAL,
			"%s:%u: '%.100s' is none of " LISTENER_KEYS
			"tokens, access_log, certificate, key, data_node, url_secret, "
			"trusted_proxies, links, limits, repositories",
			r->name, key->line, key->text);
}

int mfs_serve_config_parse(struct mfs_serve_config *c, const char *name, const char *text,
			   size_t len, struct mfs_error *err)
{
	const struct reader r = {c, name};
	struct mfs_yaml_node *root;
	int rc = mfs_yaml_tree(name, text, len, MFS_YAML_PLAIN, &c->arena, &root, err);

	if (rc)
		return rc;
	if (!root || root->kind != MFS_YAML_MAPPING)
		return mfs_fail(err, -EINVAL, "%s: it has no 'repositories:'", name);
	for (const struct mfs_yaml_node *k = root->first; k && !rc; k = k->next->next)
		rc = take_key(&r, k, err);
	return rc;
}

/* "https://HOST:PORT", also with the path at which a proxy has the node. What is appended is a path
 * and a query. */
static bool is_node(const char *url)
{
	const char *host = strstr(url, "://");
	const bool scheme = !strncmp(url, "http://", 7) || !strncmp(url, "https://", 8);

	if (!scheme || !host[3] || strchr("/:", host[3]) || strpbrk(host + 3, "?#@\\\"<>"))
		return false;
	for (const char *c = url; *c; c++)
		if (*c <= ' ' || *c > '~')
			return false;
	return true;
}

int mfs_serve_config_check(const struct mfs_serve_config *c, struct mfs_error *err)
{
	if (!c->first)
		return mfs_fail(err, -EINVAL, "there is no SOURCE");
	if (c->data_node && !is_node(c->data_node))
		return mfs_fail(err, -EINVAL,
				"data_node '%.200s': expected http:// or https://, HOST and PORT",
				c->data_node);
	if (c->data_node && !c->url_secret)
		return mfs_fail(
			err, -EINVAL,
			"data_node '%.200s' needs url_secret: a file that the node has, too",
			c->data_node);
	return 0;
}

int mfs_serve_config_read(struct mfs_serve_config *c, const char *path, struct mfs_error *err)
{
	size_t len;
	void *text;
	int rc = mfs_slurp(path, MFS_YAML_BYTES, &text, &len, err);

	if (rc)
		return rc;
	rc = mfs_serve_config_parse(c, path, text, len, err);
	free(text);
	return rc;
}
