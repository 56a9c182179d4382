/*
 * Rules: 1 where the answer in a response is the label's, else 0.
 *
 *   match   the whole response, without white space around it; token ids where there is no text
 *   gsm8k   the number after the last "####" of the last 300 characters, without commas and dollar
 *           signs (verl: utils/reward_score/gsm8k.py, method strict)
 *   boxed   what the last \boxed{} has, its braces being balanced, without spaces (verl:
 *           utils/reward_score/math_reward.py: last_boxed_only_string). Its other ways of writing
 *           the same number are not compared: a label is written as the answer is to be
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "trainer/rl/reward/reward_i.h"

#define LAST  300 /* characters of a response, in which gsm8k's answer is looked for */
#define MARK  "#### "
#define WHITE " \t\r\n\f\v"

/* ---- texts ---- */

static bool is_one_of(const char *set, char c)
{
	return c && strchr(set, c);
}

struct mft_text mft_text_trim(struct mft_text t)
{
	while (t.len && is_one_of(WHITE, t.at[0])) {
		t.at++;
		t.len--;
	}
	while (t.len && is_one_of(WHITE, t.at[t.len - 1]))
		t.len--;
	return t;
}

/* The last so many characters of UTF-8. */
static struct mft_text tail_of(struct mft_text t, unsigned characters)
{
	size_t at = t.len;

	for (; at && characters; at--)
		characters -= ((unsigned char)t.at[at - 1] & 0xc0) != 0x80;
	return (struct mft_text){t.at + at, t.len - at};
}

/* The last place of a word in a text; NULL: it is not there. */
static const char *last_of(struct mft_text t, const char *word)
{
	const size_t len = strlen(word);

	for (size_t i = t.len + 1; i-- > len;)
		if (!memcmp(t.at + i - len, word, len))
			return t.at + i - len;
	return NULL;
}

/* Equal but for bytes that do not count. */
static bool same_but_for(struct mft_text a, struct mft_text b, const char *skipped)
{
	size_t i = 0, j = 0;

	for (;;) {
		while (i < a.len && is_one_of(skipped, a.at[i]))
			i++;
		while (j < b.len && is_one_of(skipped, b.at[j]))
			j++;
		if (i == a.len || j == b.len)
			return i == a.len && j == b.len;
		if (a.at[i++] != b.at[j++])
			return false;
	}
}

/* ---- answers ---- */

struct mft_text mft_answer_all(struct mft_text of)
{
	return mft_text_trim(of);
}

/* A number at the beginning of a text: its sign, and digits, dots and commas. */
static struct mft_text number_in(struct mft_text t)
{
	struct mft_text ret = {t.at, t.len && t.at[0] == '-'};
	const size_t sign = ret.len;

	while (ret.len < t.len && is_one_of("0123456789.,", t.at[ret.len]))
		ret.len++;
	return ret.len > sign ? ret : (struct mft_text){NULL, 0};
}

struct mft_text mft_answer_gsm8k(struct mft_text of)
{
	struct mft_text before = tail_of(of, LAST), found = {NULL, 0};
	const char *const end = before.at + before.len, *mark;

	while (!found.at && (mark = last_of(before, MARK))) {
		const char *at = mark + strlen(MARK);

		found = number_in((struct mft_text){at, (size_t)(end - at)});
		before.len = (size_t)(mark - before.at);
	}
	return found;
}

struct mft_text mft_answer_boxed(struct mft_text of)
{
	const char *mark = last_of(of, "\\boxed{");
	struct mft_text ret = {mark ? mark + strlen("\\boxed{") : NULL, 0};
	unsigned depth = 1;

	for (; mark && ret.at + ret.len < of.at + of.len; ret.len++) {
		const char c = ret.at[ret.len];

		depth += c == '{';
		depth -= c == '}';
		if (!depth)
			return ret;
	}
	return (struct mft_text){NULL, 0}; /* it has no end */
}

/* ---- labels ---- */

int mft_reward_label(const struct mft_reward_row *row, char text[MFT_REWARD_NUMBER],
		     struct mft_text *ret, struct mfs_error *err)
{
	if (json_is_string(row->label)) {
		*ret = (struct mft_text){json_string_value(row->label),
					 json_string_length(row->label)};
		return 0;
	}
	if (!json_is_number(row->label))
		return mfs_fail(err, -EINVAL, "expected a label that is a text or a number");
	if (json_is_integer(row->label))
		snprintf(text, MFT_REWARD_NUMBER, "%" JSON_INTEGER_FORMAT,
			 json_integer_value(row->label));
	else
		snprintf(text, MFT_REWARD_NUMBER, "%.17g", json_real_value(row->label));
	*ret = (struct mft_text){text, strlen(text)};
	return 0;
}

int mft_reward_response(const struct mft_reward_row *row, struct mft_text *ret,
			struct mfs_error *err)
{
	if (!row->response)
		return mfs_fail(err, -EINVAL,
				"it compares texts, and there is no tokenizer: expected "
				"--tokenizer-model");
	*ret = (struct mft_text){row->response, row->response_len};
	return 0;
}

/* ids of the response against a list of ids. */
static bool has_ids(const struct mft_reward_row *row)
{
	const uint32_t count = row->response_count - (row->finish == MFT_FINISH_STOP);

	if (json_array_size(row->label) != count)
		return false;
	for (uint32_t i = 0; i < count; i++)
		if (json_integer_value(json_array_get(row->label, i)) != row->response_ids[i])
			return false;
	return true;
}

struct rule {
	struct mft_text (*answer)(struct mft_text of);
	const char *skipped; /* bytes that do not count */
};

static int score_row(const struct rule *rule, const struct mft_reward_row *row, double *ret,
		     struct mfs_error *err)
{
	struct mft_text label, found;
	char text[MFT_REWARD_NUMBER];
	int rc = mft_reward_response(row, &found, err);

	if (!rc)
		rc = mft_reward_label(row, text, &label, err);
	if (rc)
		return rc;
	found = rule->answer(found);
	*ret += found.at && same_but_for(found, mft_text_trim(label), rule->skipped);
	return 0;
}

static int score(const struct rule *rule, const struct mft_reward_row *rows, size_t count,
		 double *ret, struct mfs_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < count && !rc; i++)
		rc = score_row(rule, &rows[i], &ret[i], err);
	return rc;
}

static int score_match(void *self, const struct mft_reward_row *rows, size_t count, double *ret,
		       struct mfs_error *err)
{
	static const struct rule rule = {mft_answer_all, ""};
	int rc = 0;

	(void)self;
	for (size_t i = 0; i < count && !rc; i++)
		if (json_is_array(rows[i].label))
			ret[i] += has_ids(&rows[i]);
		else
			rc = score_row(&rule, &rows[i], &ret[i], err);
	return rc;
}

static int score_gsm8k(void *self, const struct mft_reward_row *rows, size_t count, double *ret,
		       struct mfs_error *err)
{
	static const struct rule rule = {mft_answer_gsm8k, ",$"};

	(void)self;
	return score(&rule, rows, count, ret, err);
}

static int score_boxed(void *self, const struct mft_reward_row *rows, size_t count, double *ret,
		       struct mfs_error *err)
{
	static const struct rule rule = {mft_answer_boxed, " "};

	(void)self;
	return score(&rule, rows, count, ret, err);
}

const struct mft_reward_kind mft_reward_match = {
	.name = "match", .wants_label = true, .score = score_match};
const struct mft_reward_kind mft_reward_gsm8k = {
	.name = "gsm8k", .wants_label = true, .score = score_gsm8k};
const struct mft_reward_kind mft_reward_boxed = {
	.name = "boxed", .wants_label = true, .score = score_boxed};
