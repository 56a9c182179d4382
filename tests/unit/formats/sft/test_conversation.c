/* Conversations as ids, and which of them count: formats/sft. */
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/buf.h"
#include "formats/sft/conversation.h"

static struct mfs_error err;

static int keep(void *arg, const struct mfs_turns *turns, struct mfs_error *e)
{
	struct mfs_buf *out = arg;

	(void)e;
	for (size_t i = 0; i < turns->count; i++)
		mfs_buf_adds(out, turns->counts[i] ? "1" : "0");
	mfs_buf_adds(out, "|");
	return 0;
}

/* Which tokens count, as "0011|" for each conversation. */
static int marks(const char *dir, const char *format, bool answers, const char *row, char **ret)
{
	struct mfs_buf out = {0};
	const struct mfs_talk_hooks hooks = {&out, keep};
	json_t *json = json_loads(row, 0, NULL);
	struct mfs_talk *t;
	int rc = mfs_talk_open(dir, format, answers, 0, &t, &err);

	if (!rc) {
		rc = mfs_talk_row(t, json, &hooks, &err);
		mfs_talk_free(t);
	}
	json_decref(json);
	*ret = out.data;
	if (rc)
		mfs_buf_release(&out);
	return rc;
}

static const char *tokenizer_with(const char *template)
{
	const char *dir = unit_tmpdir();
	size_t len;
	uint8_t *file = unit_slurp(unit_fixture("data/tokenizer/tokenizer.json"), &len);

	unit_write(dir, "tokenizer.json", file, len);
	free(file);
	unit_write(dir, "chat_template.jinja", template, strlen(template));
	return dir;
}

START_TEST(what_an_assistant_says_counts)
{
	static const char row[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"ab\"},"
				  "{\"role\": \"assistant\", \"content\": \"%%%\"},"
				  "{\"role\": \"system\", \"content\": \"#\"},"
				  "{\"role\": \"assistant\", \"content\": \"%\"}]}";
	static const char by_blocks[] =
		"{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content "
		"}}{% endgeneration %}{% else %}{{ m.content ~ '##' }}{% endif %}{% endfor %}";
	static const char by_turns[] = "{% for m in messages %}{{ m.content ~ '##' }}{% endfor %}";
	const char *dir = tokenizer_with(by_blocks);
	char *text, *all;

	unit_ok(marks(dir, "default", true, row, &text), &err);
	ck_assert_ptr_nonnull(strstr(text, "01"));
	ck_assert_ptr_null(strstr(text, "10"));
	unit_ok(marks(dir, "default", false, row, &all), &err);
	ck_assert_ptr_null(strchr(all, '0'));
	ck_assert_uint_eq(strlen(all), strlen(text));
	free(all);
	free(text);
	dir = tokenizer_with(by_turns);
	unit_ok(marks(dir, "default", true, row, &text), &err);
	ck_assert_ptr_nonnull(strstr(text, "01"));
	free(text);
	unit_ok(marks(dir, "identity", false, row, &text), &err);
	free(text);
}
END_TEST

START_TEST(a_conversation_has_several_forms)
{
	static const char *const forms[] = {
		"{\"messages\": [{\"role\": \"user\", \"content\": \"a\\n\\nb\"},"
		"{\"role\": \"assistant\", \"content\": \"c\"}]}",
		"{\"conversations\": [{\"from\": \"human\", \"value\": \"a\\n\\nb\"},"
		"{\"from\": \"gpt\", \"value\": \"c\"}]}",
		"{\"instruction\": \"a\", \"input\": \"b\", \"output\": \"c\"}",
		"{\"prompt\": \"a\\n\\nb\", \"completion\": \"c\"}",
		"{\"prompt\": [{\"role\": \"user\", \"content\": \"a\\n\\nb\"}],"
		"\"completion\": [{\"role\": \"assistant\", \"content\": \"c\"}]}",
		/* Rows of tables have every column. */
		"{\"messages\": null, \"conversations\": [{\"from\": \"human\", "
		"\"value\": \"a\\n\\nb\"}, {\"from\": \"gpt\", \"value\": \"c\"}]}",
		"{\"conversations\": null, \"instruction\": null, \"prompt\": \"a\", "
		"\"input\": null, \"context\": \"b\", \"output\": null, "
		"\"completion\": \"c\", \"tools\": null, \"input_ids\": null}",
	};
	const char *dir = tokenizer_with(
		"{% for m in messages %}{{ '%' if m.role == 'user' else '#' }}{{ m.content }}"
		"{% endfor %}");
	char *text, *same;

	unit_ok(marks(dir, "default", true, forms[0], &text), &err);
	ck_assert_ptr_nonnull(strstr(text, "01"));
	for (size_t i = 1; i < MFS_ARRAY_SIZE(forms); i++) {
		unit_ok(marks(dir, "default", true, forms[i], &same), &err);
		ck_assert_str_eq(same, text);
		free(same);
	}
	free(text);
}
END_TEST

START_TEST(rows_that_cannot_be_trained_on_are_refused)
{
	static const struct {
		const char *row;
		int rc;
		const char *part;
	} cases[] = {
		{"{}", -EINVAL, "there is no conversation"},
		{"{\"messages\": []}", -ENODATA, "messages need a tokenizer"},
		{"{\"conversations\": [{\"from\": \"me\", \"value\": \"a\"}]}", -EINVAL,
		 "there is no conversation"},
		{"{\"conversations\": \"a\"}", -EINVAL, "there is no conversation"},
		{"{\"conversations\": {}}", -EINVAL, "there is no conversation"},
		{"{\"conversations\": null}", -EINVAL, "there is no conversation"},
		{"{\"input_ids\": [1, -2]}", -EINVAL,
		 "input_ids[1]: expected an id, 0 to 2^31 - 1, found -2"},
		{"{\"input_ids\": [1], \"labels\": []}", -EINVAL,
		 "labels: expected a list of 1, as input_ids, found []"},
		{"{\"input_ids\": [1], \"loss_mask\": 1}", -EINVAL,
		 "loss_mask: expected a list of 1"},
		{"{\"input_ids\": [1, 2], \"labels\": [-100, 3]}", -EINVAL,
		 "labels[1]: expected 2, as input_ids[1], or -100, found 3"},
		{"{\"input_ids\": [1], \"labels\": [null]}", -EINVAL, "found null"},
		{"{\"input_ids\": [1], \"labels\": [\"1\"]}", -EINVAL, "found \"1\""},
		{"{\"input_ids\": [1, 2], \"loss_mask\": [true, 2]}", -EINVAL,
		 "loss_mask[1]: expected 0 or 1, found 2"},
		{"{\"input_ids\": [1], \"loss_mask\": [null]}", -EINVAL, "found null"},
		{"{\"input_ids\": [1], \"labels\": [1], \"loss_mask\": [1]}", -EINVAL,
		 "found both"},
	};
	char *text;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++)
		unit_fails(marks(NULL, "default", false, cases[i].row, &text), &err, cases[i].rc,
			   cases[i].part);
	unit_fails(marks(NULL, "default", true, "{\"input_ids\": [1]}", &text), &err, -EINVAL,
		   "expected labels or loss_mask with --sft-answer-only-loss, found neither");
	unit_fails(marks(tokenizer_with("{{ 1 }}"), "default", false,
			 "{\"messages\": [{\"role\": \"user\", \"content\": [1]}]}", &text),
		   &err, -ENOTSUP, "content is no text");
	unit_fails(marks(tokenizer_with("{% include 'a' %}"), "default", false, "{}", &text), &err,
		   -ENOTSUP, "'include' is not known");
	unit_fails(marks(NULL, "other", false, "{}", &text), &err, -EINVAL, "expected nemotron");
}
END_TEST

/* Documents as "1 2! 3!", '!' where the token counts as a label, with '|' after each. */
static int keep_ids(void *arg, const struct mfs_turns *turns, struct mfs_error *e)
{
	(void)e;
	for (size_t i = 0; i < turns->count; i++)
		mfs_buf_printf(arg, "%u%s ", turns->ids[i], turns->counts[i] ? "!" : "");
	mfs_buf_adds(arg, "|");
	return 0;
}

START_TEST(packed_rows_are_documents)
{
	struct mfs_buf out = {0};
	const struct mfs_talk_hooks hooks = {&out, keep_ids};
	json_t *row = json_pack("{s:[i,i,i,i,i,i], s:[i,b,i,i,i,i], s:[i,i,i]}", "input_ids", 1, 2,
				3, 4, 5, 6, "loss_mask", 0, 1, 1, 1, 0, 1, "seq_start_id", 0, 3, 3);
	struct mfs_talk *t;

	unit_ok(mfs_talk_open(NULL, "default", true, 0, &t, &err), &err);
	ck_assert(mfs_row_is_packed(row));
	unit_ok(mfs_talk_row(t, row, &hooks, &err), &err);
	ck_assert_str_eq(out.data, "1 2 3! |4 5! 6 |");
	mfs_talk_free(t);
	json_decref(row);
	mfs_buf_release(&out);
}
END_TEST

START_TEST(ids_may_have_null_for_what_they_lack)
{
	static const char *const cases[][2] = {
		{"\"labels\": null, \"loss_mask\": [0, 1]", "01|"},
		{"\"labels\": [1, -100], \"loss_mask\": null", "10|"},
		{"\"labels\": null, \"loss_mask\": null, \"seq_start_id\": null", "11|"},
	};
	char row[128], *text;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++) {
		snprintf(row, sizeof(row), "{\"input_ids\": [1, 2], %s}", cases[i][0]);
		unit_ok(marks(NULL, "default", false, row, &text), &err);
		ck_assert_str_eq(text, cases[i][1]);
		free(text);
	}
}
END_TEST

START_TEST(packed_rows_that_do_not_fit_together_are_refused)
{
	static const struct {
		const char *members, *part;
	} cases[] = {
		{"\"seq_start_id\": [0]", "seq_start_id: expected loss_mask with it, found none"},
		{"\"loss_mask\": [1], \"seq_start_id\": [0]",
		 "loss_mask: expected a list of 2, as input_ids"},
		{"\"loss_mask\": [1, 1], \"seq_start_id\": []",
		 "seq_start_id: expected a list that begins with 0, found []"},
		{"\"loss_mask\": [1, 1], \"seq_start_id\": [1]",
		 "seq_start_id[0]: expected 0, found 1"},
		{"\"loss_mask\": [1, 1], \"seq_start_id\": [0, 1, 0]",
		 "seq_start_id[2]: expected 1 to 1, within input_ids, found 0"},
		{"\"loss_mask\": [1, 1], \"seq_start_id\": [0, 2]",
		 "seq_start_id[1]: expected 0 to 1, within input_ids, found 2"},
	};
	char row[128], *text;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++) {
		snprintf(row, sizeof(row), "{\"input_ids\": [1, 2], %s}", cases[i].members);
		unit_fails(marks(NULL, "default", false, row, &text), &err, -EINVAL, cases[i].part);
	}
}
END_TEST

START_TEST(what_goes_to_the_template_has_its_form)
{
	static const struct {
		const char *members, *part; /* NULL: it is taken */
	} cases[] = {
		{"\"tools\": null, \"chat_template_kwargs\": null", NULL},
		{"\"tools\": [{}], \"chat_template_kwargs\": {}", NULL},
		{"\"tools\": \"[]\"", "tools: expected a list of objects or null, found \"[]\""},
		{"\"tools\": [{}, 1]", "tools[1]: expected an object, found 1"},
		{"\"chat_template_kwargs\": [1]",
		 "chat_template_kwargs: expected an object or null, found [1]"},
	};
	const char *dir = tokenizer_with("{{ tools is none }}");
	char row[256], *text;
	int rc;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++) {
		snprintf(row, sizeof(row),
			 "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], %s}",
			 cases[i].members);
		rc = marks(dir, "default", false, row, &text);
		if (cases[i].part) {
			unit_fails(rc, &err, -EINVAL, cases[i].part);
			continue;
		}
		unit_ok(rc, &err);
		free(text);
	}
}
END_TEST

START_TEST(special_tokens_are_those_of_both_files)
{
	static const char row[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}";
	static const char config[] = "{\"bos_token\": null, \"eos_token\": \"#\"}";
	static const char decoder[] =
		"{\"bos_token\": null, \"eos_token\": \"#\", \"added_tokens_decoder\": {}}";
	static const char map[] = "{\"eos_token\": {\"content\": \"%%#\"}}";
	const char *dir = tokenizer_with("{{ 'a' if sep_token is defined }}{{ 'b' ~ eos_token }}");
	char *text;

	unit_fails(marks(dir, "default", false, row, &text), &err, -ENODATA,
		   "special_tokens_map.json: line 1: eos_token is written, and has no value");
	unit_write(dir, "special_tokens_map.json", map, strlen(map));
	unit_ok(marks(dir, "default", false, row, &text), &err);
	ck_assert_str_eq(text, "1111|");
	free(text);
	unit_write(dir, "tokenizer_config.json", config, strlen(config));
	unit_ok(marks(dir, "default", false, row, &text), &err);
	ck_assert_str_eq(text, "1111|");
	free(text);
	unit_write(dir, "tokenizer_config.json", decoder, strlen(decoder));
	unit_ok(marks(dir, "default", false, row, &text), &err);
	ck_assert_str_eq(text, "11|");
	free(text);
	/* That there is none is known, too. */
	unit_write(dir, "chat_template.jinja", "{{ bos_token }}b", 16);
	unit_ok(marks(dir, "default", false, row, &text), &err);
	ck_assert_str_eq(text, "1|");
	free(text);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("conversation");
	TCase *c = unit_case(s, "conversation", what_an_assistant_says_counts);

	tcase_add_test(c, a_conversation_has_several_forms);
	tcase_add_test(c, rows_that_cannot_be_trained_on_are_refused);
	tcase_add_test(c, packed_rows_are_documents);
	tcase_add_test(c, ids_may_have_null_for_what_they_lack);
	tcase_add_test(c, packed_rows_that_do_not_fit_together_are_refused);
	tcase_add_test(c, what_goes_to_the_template_has_its_form);
	tcase_add_test(c, special_tokens_are_those_of_both_files);
	return s;
}
