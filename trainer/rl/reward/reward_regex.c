/* 1 where a response has a match of a regular expression; where that has a group, 1 if the first
 * match's group is the label. Else 0. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <errno.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/rl/reward/reward_i.h"

struct pattern {
	pcre2_code *code;
	pcre2_match_data *found;
	uint32_t groups;
};

static void close_regex(void *self)
{
	struct pattern *p = self;

	pcre2_match_data_free(p->found);
	pcre2_code_free(p->code);
	free(p);
}

static int compile(struct pattern *p, const char *text, struct mfs_error *err)
{
	PCRE2_UCHAR why[128] = "";
	PCRE2_SIZE at;
	int code;

	/* Responses may end within a character. */
	p->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
				PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF, &code, &at, NULL);
	if (!p->code) {
		pcre2_get_error_message(code, why, sizeof(why));
		return mfs_fail(err, -EINVAL, "--rl-reward-pattern: at byte %zu of '%s': %s", at,
				text, (const char *)why);
	}
	pcre2_pattern_info(p->code, PCRE2_INFO_CAPTURECOUNT, &p->groups);
	p->found = pcre2_match_data_create_from_pattern(p->code, NULL);
	return p->found ? 0 : mfs_fail_nomem(err);
}

static int open_regex(const struct mft_reward_config *c, void **ret, struct mfs_error *err)
{
	struct pattern *p;
	int rc;

	if (!c->pattern)
		return mfs_fail(err, -EINVAL, "--rl-reward regex: expected --rl-reward-pattern");
	p = calloc(1, sizeof(*p));
	if (!p)
		return mfs_fail_nomem(err);
	rc = compile(p, c->pattern, err);
	if (rc)
		close_regex(p);
	else
		*ret = p;
	return rc;
}

/* The first group of the match in a text; at NULL: it took no part. */
static struct mft_text group_of(const struct pattern *p, struct mft_text in)
{
	const PCRE2_SIZE *at = pcre2_get_ovector_pointer(p->found);

	if (at[2] == PCRE2_UNSET)
		return (struct mft_text){NULL, 0};
	return mft_text_trim((struct mft_text){in.at + at[2], at[3] - at[2]});
}

static int score_row(const struct pattern *p, const struct mft_reward_row *row, double *ret,
		     struct mfs_error *err)
{
	struct mft_text in, label, group;
	char text[MFT_REWARD_NUMBER];
	int rc = mft_reward_response(row, &in, err), count;

	if (!rc && p->groups)
		rc = mft_reward_label(row, text, &label, err);
	if (rc)
		return rc;
	/* One that PCRE2 gives up on, for it would take too long, is no match. */
	count = pcre2_match(p->code, (PCRE2_SPTR)in.at, in.len, 0, 0, p->found, NULL);
	if (count <= 0 || !p->groups) {
		*ret += count > 0;
		return 0;
	}
	group = group_of(p, in);
	label = mft_text_trim(label);
	*ret += group.at && group.len == label.len && !memcmp(group.at, label.at, label.len);
	return 0;
}

static int score_regex(void *self, const struct mft_reward_row *rows, size_t count, double *ret,
		       struct mfs_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < count && !rc; i++)
		rc = score_row(self, &rows[i], &ret[i], err);
	return rc;
}

const struct mft_reward_kind mft_reward_regex = {
	.name = "regex", .open = open_regex, .close = close_regex, .score = score_regex};
