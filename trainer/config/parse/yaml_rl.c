#include "trainer/config/parse/yaml_rl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/nearest.h"
#include "formats/base/str.h"

#define MOST (INT64_C(1) << 31) /* of a number that is multiplied */

/* ---- values ---- */

static const char *shown(const struct mfs_yaml_node *n)
{
	return n->kind == MFS_YAML_SCALAR ? n->text : "a list or a mapping";
}

/* Whether a node is the word of len bytes. */
static bool is_word(struct mft_yaml_reader *r, const struct mfs_yaml_node *n, const char *word,
		    size_t len)
{
	const struct mfs_yaml_node other = {.text = mfs_arena_strndup(r->arena, word, len)};
	double one, two;
	bool yes, no;

	if (!other.text || n->kind != MFS_YAML_SCALAR)
		return false;
	if (mfs_yaml_truth(n, &yes) && mfs_yaml_truth(&other, &no))
		return yes == no;
	if (mfs_yaml_real(n, &one) && mfs_yaml_real(&other, &two))
		return !(one < two) && !(one > two);
	return !strcmp(n->text, other.text);
}

static int refuse(struct mft_yaml_reader *r, const struct mft_yaml_rl_row *row,
		  const struct mfs_yaml_node *n)
{
	struct mfs_buf list = {0};

	for (const char *w = row->words; *w; w += strcspn(w, "|") + (w[strcspn(w, "|")] == '|'))
		mfs_buf_printf(&list, "%s%.*s", list.len ? ", " : "", (int)strcspn(w, "=|"), w);
	if (list.failed || !list.data) {
		mfs_buf_release(&list);
		return mfs_fail_nomem(r->err);
	}
	mfs_fail(r->err, -ENOTSUP, "%s: line %u: %s '%.80s' is not supported; expected %.200s",
		 r->name, n->line, row->path, shown(n), list.data);
	mfs_buf_release(&list);
	return -ENOTSUP;
}

/* Sets a flag to a text, as if the file had it. */
static int set_text(struct mft_yaml_reader *r, const struct mft_yaml_rl_row *row, const char *text,
		    const struct mfs_yaml_node *n)
{
	const struct mfs_yaml_node value = {.text = text, .line = n->line};

	if (!text)
		return mfs_fail_nomem(r->err);
	return mft_yaml_set(r, row->dest, row->path ? row->path : row->dest, &value, true);
}

/* Whether a node is one of the row's words. */
static bool is_one(struct mft_yaml_reader *r, const struct mft_yaml_rl_row *row,
		   const struct mfs_yaml_node *n)
{
	for (const char *w = row->words; w && *w;
	     w += strcspn(w, "|") + (w[strcspn(w, "|")] == '|'))
		if (is_word(r, n, w, strcspn(w, "=|")))
			return true;
	return false;
}

static int choose(struct mft_yaml_reader *r, const struct mft_yaml_rl_row *row,
		  const struct mfs_yaml_node *n)
{
	for (const char *w = row->words; *w;) {
		const size_t theirs = strcspn(w, "=|"), len = strcspn(w, "|");

		if (is_word(r, n, w, theirs))
			return theirs == len ? 0
					     : set_text(r, row,
							mfs_arena_strndup(r->arena, w + theirs + 1,
									  len - theirs - 1),
							n);
		w += len + (w[len] == '|');
	}
	return refuse(r, row, n);
}

/* ---- numbers of other things ---- */

static int64_t number(const struct mft_yaml_reader *r, const char *dest)
{
	return mft_flag_number(r->v, dest, 0);
}

static int divide(struct mft_yaml_reader *r, const struct mft_yaml_rl_row *row,
		  const struct mfs_yaml_node *n, int64_t given, int64_t by)
{
	if (!mft_yaml_is_taken(r, row->dest) && given % by)
		return mfs_fail(r->err, -EINVAL,
				"%s: line %u: %s: expected a multiple of the %lld responses to a "
				"prompt, found %lld",
				r->name, n->line, row->path, (long long)by, (long long)given);
	mft_yaml_set_number(r, row->dest, given / by);
	return 0;
}

static int convert(struct mft_yaml_reader *r, const struct mft_yaml_rl_row *row,
		   const struct mfs_yaml_node *n)
{
	const int64_t group = number(r, "grpo_group_size"), batch = number(r, "global_batch_size");
	const int64_t prompts = number(r, "grpo_prompts_per_step");
	const int64_t passes = number(r, "grpo_iterations");
	int64_t given, times = 1;

	if (row->kind == MFT_RL_STEPS && mfs_yaml_int(n, &given) && given < 0)
		return 0; /* never */
	if (!mfs_yaml_int(n, &given) || given < 0 || given > MOST)
		return mft_yaml_fail(r, n, "expected a number from 0 to 2147483648, found",
				     shown(n));
	if (group < 1 || group > MOST || batch > MOST || prompts > MOST || passes > MOST)
		return mft_yaml_fail(r, n, "the numbers of responses are too large for", row->path);
	if (row->kind == MFT_RL_PROMPTS)
		return divide(r, row, n, given, group);
	if (row->kind == MFT_RL_ROOM) {
		mft_yaml_set_number(r, row->dest, given + number(r, "rl_max_response_length"));
		return 0;
	}
	/* A rollout that is no number of whole batches is refused when all is known. */
	if (row->kind == MFT_RL_STEPS && batch > 0 && prompts * group >= batch)
		times = prompts * group / batch * passes;
	else if (row->kind == MFT_RL_RESPONSES)
		times = group;
	if (times > MOST)
		return mft_yaml_fail(r, n, "the numbers of responses are too large for", row->path);
	mft_yaml_set_number(r, row->dest, given * times);
	return 0;
}

/* x less the mean of the others is n / (n - 1) times x less the mean of all. */
static int leave_out(struct mft_yaml_reader *r, const struct mft_yaml_rl_row *row,
		     const struct mfs_yaml_node *n)
{
	bool on;

	if (!mfs_yaml_truth(n, &on))
		return mft_yaml_fail(r, n, "expected true or false under", row->path);
	if (!on)
		return 0;
	return set_text(r, row, mfs_str_is(mft_flag_text(r->v, row->dest), "std") ? "loo" : "rloo",
			n);
}

static int item(struct mft_yaml_reader *r, const struct mft_yaml_rl_row *row,
		const struct mfs_yaml_node *n)
{
	const struct mfs_yaml_node *at = n->kind == MFS_YAML_SEQUENCE ? n->first : NULL;

	if (at && row->kind == MFT_RL_SECOND)
		at = at->next;
	return at ? mft_yaml_set(r, row->dest, row->path, at, true)
		  : mft_yaml_fail(r, n, "expected a list of two numbers under", row->path);
}

/* --rl-prompt-data is one file, or one directory. Paths of verl's own files begin with "~/". */
static int file(struct mft_yaml_reader *r, const struct mft_yaml_rl_row *row,
		const struct mfs_yaml_node *n)
{
	const char *home = getenv("HOME");

	if (n->kind == MFS_YAML_SEQUENCE && n->first && !n->first->next)
		n = n->first;
	if (n->kind != MFS_YAML_SCALAR)
		return mft_yaml_fail(r, n, "expected one path under", row->path);
	if (home && !strncmp(n->text, "~/", 2))
		return set_text(r, row, mfs_arena_printf(r->arena, "%s%s", home, n->text + 1), n);
	return mft_yaml_set(r, row->dest, row->path, n, true);
}

/* ---- rows ---- */

/* The node at a path of the file. NULL: there is none. */
static const struct mfs_yaml_node *at_path(const struct mfs_yaml_node *n, const char *path)
{
	while (n && *path) {
		const size_t len = strcspn(path, ".");
		const struct mfs_yaml_node *k = n->kind == MFS_YAML_MAPPING ? n->first : NULL;

		while (k && (strlen(k->text) != len || memcmp(k->text, path, len) != 0))
			k = k->next->next;
		n = k ? k->next : NULL;
		path += len + (path[len] == '.');
	}
	return n;
}

static int apply(struct mft_yaml_reader *r, const struct mft_yaml_rl_row *row,
		 const struct mfs_yaml_node *n)
{
	switch (row->kind) {
	case MFT_RL_TAKEN:
		return mft_yaml_set(r, row->dest, row->path ? row->path : row->dest, n, true);
	case MFT_RL_CHOICE:
		return choose(r, row, n);
	case MFT_RL_RESPONSES:
	case MFT_RL_PROMPTS:
	case MFT_RL_STEPS:
	case MFT_RL_ROOM:
		return convert(r, row, n);
	case MFT_RL_OTHERS:
		return leave_out(r, row, n);
	case MFT_RL_FIRST:
	case MFT_RL_SECOND:
		return item(r, row, n);
	case MFT_RL_FILE:
		return file(r, row, n);
	case MFT_RL_SECTION:
	case MFT_RL_UNUSED:
	case MFT_RL_ELSEWHERE:
		break;
	}
	return 0;
}

static int read_row(struct mft_yaml_reader *r, const struct mft_yaml_rl_row *row,
		    const struct mfs_yaml_node *file)
{
	const struct mfs_yaml_node initial = {.text = row->initial, .line = file->line};
	const struct mfs_yaml_node *n = row->path ? at_path(file, row->path) : NULL;
	int rc = 0;

	if (row->kind >= MFT_RL_SECTION ||
	    (row->kind == MFT_RL_FILE && mft_yaml_is_taken(r, row->dest)))
		return 0;
	if (n)
		rc = mft_yaml_resolve(r, (struct mfs_yaml_node *)n);
	if (rc)
		return rc;
	if (!n || mfs_yaml_is_null(n))
		n = row->initial ? &initial : NULL;
	return n ? apply(r, row, n) : 0;
}

/* ---- names ---- */

static const struct mft_yaml_rl_row *row_of(const struct mft_yaml_rl_program *p, const char *path)
{
	for (size_t i = 0; i < p->count; i++)
		if (p->rows[i].path && mfs_str_is(path, p->rows[i].path))
			return &p->rows[i];
	return NULL;
}

/* The row "a.*" of a path in a, the deepest one. */
static const struct mft_yaml_rl_row *rest_of(const struct mft_yaml_rl_program *p, const char *path)
{
	const struct mft_yaml_rl_row *best = NULL;
	size_t most = 0;

	for (size_t i = 0; i < p->count; i++) {
		const char *of = p->rows[i].path ? p->rows[i].path : "";
		const size_t len = strcspn(of, "*");

		if (of[len] == '*' && len > most && !strncmp(path, of, len)) {
			best = &p->rows[i];
			most = len;
		}
	}
	return best;
}

static bool has_below(const struct mft_yaml_rl_program *p, const char *path)
{
	const size_t len = strlen(path);

	for (size_t i = 0; i < p->count; i++)
		if (p->rows[i].path && !strncmp(p->rows[i].path, path, len) &&
		    p->rows[i].path[len] == '.')
			return true;
	return false;
}

static int unknown(struct mft_yaml_reader *r, const struct mft_yaml_rl_program *p,
		   const struct mfs_yaml_node *key, const char *path)
{
	struct mfs_nearest near = {.word = path};
	char hint[MFS_NEAREST_HINT];

	for (size_t i = 0; i < p->count; i++)
		if (p->rows[i].path)
			mfs_nearest_try(&near, p->rows[i].path);
	return mfs_fail(r->err, -EINVAL, "%s: line %u: unknown name '%.120s' in a file of %s%s",
			r->name, key->line, path, p->name, mfs_nearest_hint(&near, "", hint));
}

static int unused(struct mft_yaml_reader *r, const struct mft_yaml_rl_row *row, const char *path,
		  const struct mfs_yaml_node *value)
{
	const size_t len = strcspn(path, ".");
	const char *first = mfs_arena_strndup(r->arena, path, len);
	bool on;

	if (mfs_yaml_is_null(value) || (mfs_yaml_truth(value, &on) && !on) || is_one(r, row, value))
		return 0;
	return first ? mft_yaml_unused(r, first, path + len + (path[len] == '.'))
		     : mfs_fail_nomem(r->err);
}

/* Appends pairs to a section: all of a mapping, or the pair of a key. */
static int pass_on(struct mft_yaml_reader *r, struct mfs_yaml_node *sections, const char *section,
		   const struct mfs_yaml_node *key, bool all)
{
	const struct mfs_yaml_node empty = {.kind = MFS_YAML_MAPPING, .line = key->line};
	const struct mfs_yaml_node *k = all ? key->next->first : key;
	struct mfs_yaml_node *to = (struct mfs_yaml_node *)mfs_yaml_get(sections, section);
	int rc;

	if (mfs_yaml_is_null(key->next))
		return 0;
	if (all && key->next->kind != MFS_YAML_MAPPING)
		return mft_yaml_fail(r, key, "expected names with values under", key->text);
	rc = mft_yaml_resolve(r, key->next);
	if (!to)
		to = mft_yaml_append(r, sections, section, &empty);
	for (; k && !rc && to; k = all ? k->next->next : NULL)
		if (!mft_yaml_append(r, to, k->text, k->next))
			to = NULL;
	return rc || to ? rc : mfs_fail_nomem(r->err);
}

/* What no row has set: sections, what has no effect, and unknown names. */
static int read_names(struct mft_yaml_reader *r, const struct mft_yaml_rl_program *p,
		      const struct mfs_yaml_node *pairs, const char *above,
		      struct mfs_yaml_node *sections)
{
	int rc = 0;

	for (const struct mfs_yaml_node *k = pairs->first; k && !rc; k = k->next->next) {
		const char *path =
			mfs_arena_printf(r->arena, "%s%s%s", above, *above ? "." : "", k->text);
		const struct mft_yaml_rl_row *row = path ? row_of(p, path) : NULL;

		if (!path)
			return mfs_fail_nomem(r->err);
		if (!row && has_below(p, path)) {
			if (k->next->kind == MFS_YAML_MAPPING)
				rc = read_names(r, p, k->next, path, sections);
			else if (!mfs_yaml_is_null(k->next))
				rc = mft_yaml_fail(r, k, "expected names with values under", path);
			continue;
		}
		if (row && row->kind == MFT_RL_SECTION)
			rc = pass_on(r, sections, row->dest, k, true);
		else if (row)
			rc = row->kind == MFT_RL_UNUSED ? unused(r, row, path, k->next) : 0;
		else if (!(row = rest_of(p, path)))
			rc = unknown(r, p, k, path);
		else
			rc = row->kind == MFT_RL_SECTION ? pass_on(r, sections, row->dest, k, false)
							 : unused(r, row, path, k->next);
	}
	return rc;
}

int mft_yaml_rl_read(struct mft_yaml_reader *r, const struct mft_yaml_rl_program *program,
		     const struct mfs_yaml_node *file, struct mfs_yaml_node *sections)
{
	int rc = 0;

	mft_yaml_set_truth(r, "perform_rl_step", true);
	for (size_t i = 0; i < program->count && !rc; i++)
		rc = read_row(r, &program->rows[i], file);
	return rc ? rc : read_names(r, program, file, "", sections);
}
