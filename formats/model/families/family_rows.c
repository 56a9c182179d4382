/* Rows of a family's tensors and of its config.json. */
#include <jansson.h>
#include <string.h>

#include "formats/args/field.h"
#include "formats/base/array.h"
#include "formats/base/grow.h"
#include "formats/base/nearest.h"
#include "formats/base/str.h"
#include "formats/ckpt/param_axes.h"
#include "formats/model/families/read_i.h"

#define LONGEST	    160 /* HF name, bytes */
#define MOST_ROWS   2000
#define MOST_VALUES 4 /* of a key */

/* ---- rows of any kind ---- */

static bool is_at(const struct mfs_family_entry *e, unsigned where, const char *key)
{
	return e->where == where && !strcmp(e->key, key);
}

static void remove_at(struct mfs_family_rows *rows, size_t i)
{
	memmove(&rows->at[i], &rows->at[i + 1], (--rows->count - i) * sizeof(*rows->at));
}

/* The place of a new row: that of the base's first one of its key, whose others go. */
static size_t place_of(struct mfs_family_rows *rows, unsigned where, const char *key)
{
	size_t place = rows->count;

	for (size_t i = rows->count; i-- > 0;) {
		if (rows->at[i].own || !is_at(&rows->at[i], where, key))
			continue;
		if (place < rows->count)
			remove_at(rows, place);
		place = i;
	}
	return place;
}

int mfs_family_put(struct mfs_family_reader *r, struct mfs_family_rows *rows, unsigned where,
		   const char *key, const void *row, bool own)
{
	const size_t place = own ? place_of(rows, where, key) : rows->count;

	if (rows->count == MOST_ROWS)
		return mfs_fail(r->err, -EINVAL, "more than %d rows", MOST_ROWS);
	if (place == rows->count) {
		if (mfs_grow(&rows->at, rows->count))
			return mfs_fail_nomem(r->err);
		rows->count++;
	}
	rows->at[place] = (struct mfs_family_entry){key, where, own, row};
	return 0;
}

static bool matches(const char *pattern, const char *key)
{
	const size_t len = strlen(pattern);

	if (len && pattern[len - 1] == '*')
		return !strncmp(pattern, key, len - 1);
	return !strcmp(pattern, key);
}

int mfs_family_drop(struct mfs_family_reader *r, struct mfs_family_rows *rows, unsigned where,
		    const char *key)
{
	bool found = false;

	for (size_t i = rows->count; i-- > 0;) {
		const struct mfs_family_entry *e = &rows->at[i];

		if (e->own || e->where != where || !matches(key, e->key))
			continue;
		remove_at(rows, i);
		found = true;
	}
	return found ? 0
		     : mfs_fail(r->err, -EINVAL, "'%.60s' is none, but no base has it here", key);
}

static void *add(struct mfs_family_reader *r, size_t size)
{
	void *row = mfs_arena_alloc(r->arena, size);

	if (!row)
		mfs_fail_nomem(r->err);
	return row;
}

/* ---- tensors ---- */

unsigned mfs_family_where(enum mfs_scope scope, enum mfs_layer_kind kind)
{
	return 8 * (unsigned)scope + (unsigned)kind;
}

static int check_param(struct mfs_family_reader *r, enum mfs_scope scope, const char *name)
{
	struct mfs_nearest near = {.word = name};
	char hint[MFS_NEAREST_HINT];

	if (mfs_param_find(scope, name, MFS_ATTENTION_GQA) ||
	    mfs_param_find(scope, name, MFS_ATTENTION_MLA))
		return 0;
	mfs_param_nearest(scope, MFS_ATTENTION_GQA, &near);
	mfs_param_nearest(scope, MFS_ATTENTION_MLA, &near);
	mfs_nearest_hint(&near, "", hint);
	return mfs_fail(r->err, -EINVAL, "'%.80s' is no parameter that a GPTModel has here%s", name,
			hint);
}

/* [RULE "of"] PARAMETER {"," FLAG} */
static int read_source(struct mfs_family_reader *r, struct mfs_words *w,
		       struct mfs_family_tensor *row)
{
	if (w->at[0] && mfs_str_is(w->at[1], "of")) {
		if (!mfs_rule_find(w->at[0], &row->rule))
			return mfs_fail(r->err, -EINVAL, "'%.60s of' is no rule", w->at[0]);
		w->next = 2;
	}
	row->name = w->at[w->next];
	if (!row->name)
		return mfs_fail(r->err, -EINVAL, "Megatron's parameter is missing");
	w->next++;
	for (size_t at = w->next; mfs_words_take(w, ","); at = w->next) {
		if (mfs_words_take(w, "transposed")) {
			row->transposed = true;
		} else if (mfs_words_take(w, "stacked")) {
			row->stacked = true;
		} else if (mfs_words_take(w, "plain")) {
			row->plain = true;
		} else {
			w->next = at;
			break;
		}
	}
	return check_param(r, row->scope, row->name);
}

static int check_name(struct mfs_family_reader *r, const char *hf, bool experts)
{
	const char *hole = strchr(hf, '{');

	if (strlen(hf) > LONGEST)
		return mfs_fail(r->err, -EINVAL, "a name of %zu bytes, expected at most %d",
				strlen(hf), LONGEST);
	if (strpbrk(hf, " \t"))
		return mfs_fail(r->err, -EINVAL, "'%.60s': a name has no blanks", hf);
	if (hole && (strncmp(hole, "{e}", 3) || strpbrk(hole + 3, "{}")))
		return mfs_fail(r->err, -EINVAL, "'%.80s', expected {e} once at most", hf);
	if (experts == !hole)
		return mfs_fail(
			r->err, -EINVAL,
			experts ? "'%.80s' is of experts, expected {e} in its name or 'stacked'"
				: "'%.80s' is not of experts, expected a name without {e}",
			hf);
	return 0;
}

int mfs_family_read_tensor(struct mfs_family_reader *r, const struct mfs_conf_line *line,
			   enum mfs_scope scope, enum mfs_layer_kind kind)
{
	const unsigned where = mfs_family_where(scope, kind);
	struct mfs_family_tensor *row = add(r, sizeof(*row));
	struct mfs_words w;
	int rc;

	if (!row)
		return -ENOMEM;
	if (!strcmp(line->value, "none"))
		return mfs_family_drop(r, &r->tensors, where, line->key);
	*row = (struct mfs_family_tensor){.hf = line->key, .scope = scope, .kind = kind};
	rc = mfs_words_split(line->value, r->arena, &w, r->err);
	if (!rc)
		rc = read_source(r, &w, row);
	if (!rc)
		rc = mfs_words_conditions(&w, &row->when, &row->unless, r->err);
	if (!rc) {
		row->experts = !strncmp(row->name, "mlp.experts.", 12);
		rc = check_name(r, row->hf, mfs_is_per_expert(row));
	}
	if (!rc && row->stacked && !row->experts)
		rc = mfs_fail(r->err, -EINVAL, "'%.80s' is not of experts: nothing is stacked",
			      row->name);
	if (!rc && row->experts && kind != MFS_LAYER_MOE)
		rc = mfs_fail(r->err, -EINVAL, "'%.80s' is of experts, expected it in [layer moe]",
			      row->name);
	return rc ? rc : mfs_family_put(r, &r->tensors, where, line->key, row, true);
}

/* What a tensor's rows are, if the row gives no rule. */
static enum mfs_rule usual_rule(const struct mfs_family_tensor *row)
{
	if (row->shape[0] == MFS_DIM_VOCAB)
		return MFS_RULE_VOCAB;
	return row->shape[0] == MFS_DIM_HEAD ? MFS_RULE_HEAD : MFS_RULE_DIRECT;
}

static const char *misfit(const struct mfs_family_tensor *row, const struct mfs_param *p,
			  bool gated, bool output_gate)
{
	const struct mfs_rule_tensor t = {.shape = row->shape,
					  .transposed = row->transposed,
					  .halved = gated && mfs_param_is_halved(p),
					  .output_gate = output_gate};

	if (row->transposed && mfs_param_ndim(row->shape) != 2)
		return "only a matrix has a transpose";
	if (row->plain && !p->norm)
		return "only a norm is plain";
	return mfs_rule_misfit(row->rule, &t);
}

static int settle_tensor(struct mfs_family_reader *r, struct mfs_family_tensor *row)
{
	const struct mfs_family *f = r->family;
	const bool gated = f->required & (MFS_HAS(SWIGLU) | MFS_HAS(QUICK_GEGLU) | MFS_HAS(GEGLU));
	const struct mfs_param *p =
		mfs_param_find(row->scope, row->name,
			       mfs_attention_kind(f->required & MFS_HAS(MLA),
						  f->required & MFS_HAS(QK_NORM_WIDE)));
	const char *why;

	if (!p)
		return mfs_fail(r->err, -EINVAL,
				"%s: tensor '%s': a model of these features has no '%s'", r->file,
				row->hf, row->name);
	mfs_param_axes(p, gated, row->shape);
	row->norm = p->norm && (!f->norms_minus_one || row->plain);
	if (mfs_rule_is_usual(row->rule))
		row->rule = usual_rule(row);
	why = misfit(row, p, gated, (f->required | f->optional) & MFS_HAS(OUTPUT_GATE));
	return why ? mfs_fail(r->err, -EINVAL, "%s: tensor '%s': %s", r->file, row->hf, why) : 0;
}

/* Kinds of layers that no layer is of at once. */
static bool are_apart(enum mfs_layer_kind a, enum mfs_layer_kind b, bool hybrid)
{
	if (hybrid && a != MFS_LAYER_ANY && b != MFS_LAYER_ANY)
		return a != b;
	return a != b && (((a == MFS_LAYER_DENSE || a == MFS_LAYER_MOE) &&
			   (b == MFS_LAYER_DENSE || b == MFS_LAYER_MOE)) ||
			  ((a == MFS_LAYER_FULL || a == MFS_LAYER_LINEAR) &&
			   (b == MFS_LAYER_FULL || b == MFS_LAYER_LINEAR)));
}

/* True if a model could have both rows. */
static bool meet(const struct mfs_family_tensor *a, const struct mfs_family_tensor *b, bool hybrid)
{
	return a->scope == b->scope && !strcmp(a->hf, b->hf) && a->when == b->when &&
	       a->unless == b->unless && !are_apart(a->kind, b->kind, hybrid);
}

int mfs_family_settle_tensors(struct mfs_family_reader *r)
{
	struct mfs_family_tensor *rows =
		mfs_arena_array(r->arena, r->tensors.count + 1, sizeof(*rows));
	int rc = 0;

	if (!rows)
		return mfs_fail_nomem(r->err);
	for (size_t i = 0; i < r->tensors.count && !rc; i++) {
		memcpy(&rows[i], r->tensors.at[i].row, sizeof(*rows));
		for (size_t k = 0; k < i && !rc; k++)
			if (meet(&rows[i], &rows[k], r->family->required & MFS_HAS(HYBRID)))
				rc = mfs_fail(r->err, -EINVAL, "%s: tensor '%s' is there twice",
					      r->file, rows[i].hf);
		if (!rc && r->family->architecture)
			rc = settle_tensor(r, &rows[i]);
	}
	r->family->tensors = rows;
	return rc ? rc : mfs_family_settle_vllm(r, rows);
}

/* ---- config.json ---- */

static const struct {
	const char *first, *second;
	enum mfs_config_ref ref;
} policies[] = {
	{"wins", "noted", MFS_REF_WINS_NOTED},
	{"wins", NULL, MFS_REF_WINS},
	{"loses", "noted", MFS_REF_LOSES_NOTED},
	{"loses", NULL, MFS_REF_LOSES},
};

/* ["," "reference" POLICY] */
static int read_policy(struct mfs_family_reader *r, struct mfs_words *w, enum mfs_config_ref *ret)
{
	const size_t from = w->next;

	if (!mfs_words_take(w, ",") || !mfs_words_take(w, "reference")) {
		w->next = from;
		return 0;
	}
	for (size_t i = 0; i < MFS_ARRAY_SIZE(policies); i++) {
		const size_t at = w->next;

		if (mfs_words_take(w, policies[i].first) &&
		    (!policies[i].second || mfs_words_take(w, policies[i].second))) {
			*ret = policies[i].ref;
			return 0;
		}
		w->next = at;
	}
	return mfs_fail(r->err, -EINVAL, "'reference %.40s', expected wins or loses",
			w->at[w->next] ? w->at[w->next] : "");
}

static bool is_constant(const char *word)
{
	return strchr("\"-0123456789", *word) || !strcmp(word, "true") || !strcmp(word, "false") ||
	       !strcmp(word, "null");
}

static int read_constant(struct mfs_family_reader *r, const char *word, struct mfs_config_row *row)
{
	json_t *value = json_loads(word, JSON_DECODE_ANY, NULL);
	const char *text = json_string_value(value);

	if (json_is_string(value)) {
		row->kind = MFS_CONFIG_TEXT;
		row->text = mfs_arena_strndup(r->arena, text, strlen(text));
	} else if (json_is_integer(value)) {
		row->kind = MFS_CONFIG_NUMBER;
	} else if (json_is_real(value)) {
		row->kind = MFS_CONFIG_DECIMAL;
	} else if (json_is_boolean(value)) {
		row->kind = json_is_true(value) ? MFS_CONFIG_TRUE : MFS_CONFIG_FALSE;
	} else if (json_is_null(value)) {
		row->kind = MFS_CONFIG_NULL;
	} else {
		return mfs_fail(r->err, -EINVAL, "'%.60s' is no JSON value", word);
	}
	row->number = json_number_value(value);
	json_decref(value);
	return row->kind == MFS_CONFIG_TEXT && !row->text ? mfs_fail_nomem(r->err) : 0;
}

static int read_computed(struct mfs_family_reader *r, const char *word, struct mfs_config_row *row)
{
	const struct mfs_word *value = word ? mfs_word_find(mfs_word_values, word) : NULL;

	if (!value)
		return mfs_fail(r->err, -EINVAL, "'computed %.60s' is nothing that can be computed",
				word ? word : "");
	row->kind = MFS_CONFIG_VALUE;
	row->value = (enum mfs_config_value)value->means;
	return 0;
}

static int read_argument(struct mfs_family_reader *r, const char *word, struct mfs_config_row *row)
{
	const struct mfs_args_field *found = mfs_args_word(word);
	struct mfs_nearest near = {.word = word};
	char hint[MFS_NEAREST_HINT];

	if (found) {
		row->kind = found->type == MFS_ARGS_INT ? MFS_CONFIG_INT : MFS_CONFIG_REAL;
		row->field = found->offset;
		return 0;
	}
	for (const struct mfs_args_field *f = mfs_args_fields; f->member; f++)
		if (f->word)
			mfs_nearest_try(&near, f->member);
	mfs_nearest_hint(&near, "", hint);
	return mfs_fail(r->err, -EINVAL, "'%.60s' is neither an argument nor a JSON value%s", word,
			hint);
}

static int read_value(struct mfs_family_reader *r, struct mfs_words *w, struct mfs_config_row *row)
{
	const char *word = w->at[w->next];

	if (!word)
		return mfs_fail(r->err, -EINVAL, "the value is missing");
	w->next++;
	if (!strcmp(word, "has") || !strcmp(word, "lacks")) {
		row->kind = *word == 'h' ? MFS_CONFIG_HAS : MFS_CONFIG_LACKS;
		return mfs_words_features(w, "or", &row->has, r->err);
	}
	if (!strcmp(word, "computed"))
		return read_computed(r, w->at[w->next] ? w->at[w->next++] : NULL, row);
	return is_constant(word) ? read_constant(r, word, row) : read_argument(r, word, row);
}

/* This file gives the key once for models of these features. */
static int check_once(struct mfs_family_reader *r, const struct mfs_config_row *row)
{
	for (size_t i = 0; i < r->config.count; i++) {
		const struct mfs_config_row *other = r->config.at[i].row;

		if (r->config.at[i].own && !strcmp(other->key, row->key) &&
		    other->when == row->when && other->unless == row->unless)
			return mfs_fail(r->err, -EINVAL, "'%.60s' is there twice", row->key);
	}
	return 0;
}

/* VALUE {"and" VALUE} [POLICY] [CONDITIONS]: a row for each value. All are read, and the last is
 * written. */
int mfs_family_read_config(struct mfs_family_reader *r, const struct mfs_conf_line *line)
{
	struct mfs_config_row *rows = mfs_arena_array(r->arena, MOST_VALUES, sizeof(*rows));
	size_t count = 0;
	struct mfs_words w;
	int rc;

	if (!rows)
		return mfs_fail_nomem(r->err);
	if (!strcmp(line->value, "none"))
		return mfs_family_drop(r, &r->config, 0, line->key);
	rc = mfs_words_split(line->value, r->arena, &w, r->err);
	do {
		rows[count].key = line->key;
		rc = rc ? rc : read_value(r, &w, &rows[count++]);
	} while (!rc && count < MOST_VALUES && mfs_words_take(&w, "and"));
	if (!rc)
		rc = read_policy(r, &w, &rows[0].ref);
	if (!rc)
		rc = mfs_words_conditions(&w, &rows[0].when, &rows[0].unless, r->err);
	if (!rc)
		rc = check_once(r, &rows[0]);
	for (size_t i = 0; i < count && !rc; i++) {
		rows[i].ref = rows[0].ref;
		rows[i].when = rows[0].when;
		rows[i].unless = rows[0].unless;
		rc = mfs_family_put(r, &r->config, 0, line->key, &rows[i], true);
	}
	return rc;
}

int mfs_family_settle_config(struct mfs_family_reader *r)
{
	struct mfs_config_row *rows = mfs_arena_array(r->arena, r->config.count + 1, sizeof(*rows));

	if (!rows)
		return mfs_fail_nomem(r->err);
	for (size_t i = 0; i < r->config.count; i++)
		memcpy(&rows[i], r->config.at[i].row, sizeof(*rows));
	r->family->config = rows;
	return 0;
}
