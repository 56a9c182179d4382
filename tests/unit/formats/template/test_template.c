/* Chat templates: formats/template/template.h. tests/interop/test_sft.py compares losses with those
 * of transformers. */
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "formats/base/array.h"
#include "formats/template/template.h"

static struct mfs_error err;

static const char *const needed[] = {"eos_token", NULL};

static const char conversation[] =
	"{\"messages\": [{\"role\": \"user\", \"content\": \" Caf\xc3\xa9? \"},"
	"{\"role\": \"assistant\", \"content\": \"Yes.\", \"n\": 1.5},"
	"{\"role\": \"user\", \"content\": \"More\"}], \"tools\": null, \"bos_token\": \"<s>\","
	"\"list\": [3, 1, 2], \"deep\": {\"b\": {\"x\": [true, null]}, \"a\": 2}}";

/* 0: *ret has the text, and its spans in brackets. */
static int render(const char *template, char **ret)
{
	struct mfs_template_text text;
	struct mfs_template *t;
	struct mfs_buf out = {0};
	json_t *variables;
	int rc = mfs_template_parse(template, strlen(template), &t, &err);

	if (rc)
		return rc;
	ck_assert_int_eq(mfs_template_marks_answers(t), strstr(template, "% generation") != NULL);
	variables = json_loads(conversation, 0, NULL);
	ck_assert_ptr_nonnull(variables);
	rc = mfs_template_render(t, variables, 1000000000, needed, &text, &err);
	json_decref(variables);
	mfs_template_free(t);
	if (rc)
		return rc;
	mfs_buf_add(&out, text.text.len ? text.text.data : "", text.text.len);
	for (size_t i = 0; i < text.span_count; i++)
		mfs_buf_printf(&out, "[%zu %zu]", text.spans[i].from, text.spans[i].to);
	mfs_buf_add(&out, "", 1);
	mfs_template_text_release(&text);
	*ret = out.data;
	return 0;
}

START_TEST(a_template_is_rendered_as_jinja_renders_it)
{
	static const struct {
		const char *template, *want;
	} cases[] = {
		{"a\n{% if true %}\n  b\n{% endif %}\nc\n", "a\n  b\nc"},
		{"x  {%- if 1 -%}  y  {%- endif %} z", "xy z"},
		{"  {% set a = 1 %}\n  {{ a }}", "  1"},
		{"{%+ if 1 %} a{% endif +%}\nb", " a\nb"},
		{"a {# no #} b {#- n -#} c", "a  bc"},
		{"{% raw %}{{ x }}{% endraw %}", "{{ x }}"},
		{"{% for m in messages %}{{ m.role[0] }}{{ m['content']|trim }}{{ ',' if not "
		 "loop.last }}{% endfor %}",
		 "uCaf\xc3\xa9?,aYes.,uMore"},
		{"{% for m in messages if m.role == 'user' %}{{ loop.index }}/{{ loop.length "
		 "}}{% else %}none{% endfor %}",
		 "1/22/2"},
		{"{% set ns = namespace(n=0) %}{% for i in range(4) %}{% if i == 2 %}{% continue "
		 "%}{% endif %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
		 "4"},
		{"{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{% endfor %}{{ x }}", "1"},
		{"{% for m in messages %}{% continue %}{% else %}E{% endfor %}", "E"},
		{"{% for m in messages %}{% break %}{% else %}E{% endfor %}", "E"},
		{"{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{% else %}E"
		 "{% endfor %}",
		 ""},
		{"{% macro odd(i) %}{{ i % 2 }}{% endmacro %}{% for i in range(5) if odd(i) == '1' "
		 "%}{{ i }}{% continue %}{% endfor %}",
		 "13"},
		{"{% set ns = namespace() %}{% for i in [1] %}{% macro m() %}{{ bos_token }}{{ x }}"
		 "{% endmacro %}{% set ns.f = m %}{% endfor %}{{ ns.f() }}",
		 "<s>"},
		{"{% set x = 'a' %}{% for i in [1] %}{% macro m() %}{{ x }}{{ i }}{% endmacro %}"
		 "{{ m() }}{% endfor %}",
		 "a1"},
		{"{% macro m(a, b='q') %}<{{ a }}{{ b }}>{% endmacro %}{{ m(1) }}{{ m(b=2, a=3) }}",
		 "<1q><32>"},
		{"{% set x %}in {{ 1 + 1 }}{% endset %}{{ x|upper }}", "IN 2"},
		{"{{ messages[5] is defined }}{{ tools is none }}{{ nothing }}", "FalseTrue"},
		{"{{ messages[0].content[1:-2] }}{{ 'abc'[::-1] }}{{ list[1:] }}", "Caf\xc3\xa9"
										   "cba[1, 2]"},
		{"{{ deep|tojson }} {{ deep|tojson(indent=1, sort_keys=true) }}",
		 "{\"b\": {\"x\": [true, null]}, \"a\": 2} {\n \"a\": 2,\n \"b\": {\n  \"x\": [\n "
		 "  "
		 "true,\n   null\n  ]\n }\n}"},
		{"{{ deep }}{{ (1,) }}{{ \"it's\" }}{{ [\"it's\"] }}",
		 "{'b': {'x': [True, None]}, 'a': 2}(1,)it's[\"it's\"]"},
		{"{% for k, v in {'b': 1, 'C': 2, 'a': 3, 'A': 4}|dictsort %}{{ k ~ v }}"
		 "{% endfor %}",
		 "a3A4b1C2"},
		{"{% for k, v in deep.items() %}{{ k }}{{ loop.index0 }}{% endfor %}", "b0a1"},
		{"{{ deep.get('a') }}{{ deep.items is callable }}{{ deep['a'] }}", "2True2"},
		{"{{ 7 // 2 }}{{ -7 // 2 }}{{ 7 % -3 }}{{ 7 / 2 }}{{ 2 * 'ab' if false else 'ab' * "
		 "2 }}",
		 "3-4-23.5abab"},
		{"{{ 'a' in 'cat' and not 1 > 2 }}{{ 1 < 2 < 3 }}{{ 2 not in list }}",
		 "TrueTrueFalse"},
		{"{{ 'a' ~ 1 ~ none ~ missing }}{{ 'x' 'y' }}{{ '\\n\\x41\\u00e9' }}",
		 "a1Nonexy\nA\xc3\xa9"},
		{"{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|"
		 "join('+') }}",
		 " Caf\xc3\xa9? +More"},
		{"{{ 'a<b'|safe }}{{ missing|default('d') }}{{ ''|default('e', true) }}{{ list|"
		 "length }}{{ list|first }}{{ list|last }}",
		 "a<bde332"},
		{"{{ ' a b '.strip().split(' ')[1] }}{{ 'a,b,c'.split(',', 1)|length }}{{ "
		 "'abc'.replace('b', '') }}{{ 'x'.startswith(('y', 'x')) }}",
		 "b2acTrue"},
		{"{{ messages[1].n }}{{ 1 if messages[1].n is number }}{{ 3 is odd }}{{ [] is "
		 "sequence }}{{ deep is mapping }}{{ 'a' is string }}",
		 "1.51TrueTrueTrueTrue"},
		{"{{ 'xxaxx'.strip('yx') }}{{ '\\u00e9a\\u00e9 '.rstrip(' \\u00e9') }}"
		 "{{ '\\u2003a\\u2003'.lstrip() }}{{ ' \n'.strip() }}",
		 "a\xc3\xa9"
		 "aa\xe2\x80\x83"},
		{"{{ messages|map(attribute=content)|join('|') }}{{ messages|join('-', "
		 "attribute='role') }}{{ messages|map(attribute=0, default='d')|list }}",
		 "||user-assistant-user['d', 'd', 'd']"},
		{"{{ '\\nx'|indent(first=true) }}|{{ ''|indent(first=true) }}|{{ "
		 "'a\\n\\nb\\n'|indent(2) }}|",
		 "    \n    x|    |a\n\n  b\n|"},
		{"{{ 'a'|safe|string }}{{ ('a'|safe) ~ '<' }}{{ (1|string) + '<' }}", "aa<1<"},
		{"{{ strftime_now('%Y-%m-%d %H:%M') }}", "2001-09-09 01:46"},
		{"{{ eos_token is defined }}{{ 'b' if eos_token }}{{ eos_token|default('c') }}",
		 "Falsec"},
		{"{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}", "3False"},
		{"{% filter upper %}ab{% endfilter %}", "AB"},
		{"{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' %}{% generation "
		 "%}{{ m.content }}{% endgeneration %}{% endif %}{% endfor %}",
		 "user:assistant:Yes.user:[15 19]"},
	};
	char *text;

	setenv("TZ", "LINT-14", 1); /* now is in UTC */
	tzset();
	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++) {
		unit_ok(render(cases[i].template, &text), &err);
		ck_assert_msg(!strcmp(text, cases[i].want), "%s: '%s' instead of '%s'",
			      cases[i].template, text, cases[i].want);
		free(text);
	}
}
END_TEST

START_TEST(what_is_not_known_is_refused_by_its_name)
{
	static const struct {
		const char *template;
		int rc;
		const char *part;
	} cases[] = {
		{"\n{% include 'x' %}", -ENOTSUP, "line 2: the statement 'include' is not known"},
		{"{{ a|groupby('b') }}", -ENOTSUP, "the filter 'groupby' is not known"},
		{"{{ a is sameas b }}", -ENOTSUP, "the test 'sameas' is not known"},
		{"{{ 'a'.zfill(3) }}", -ENOTSUP, "'zfill' of a str is not known"},
		{"{{ 'a'.__class__ }}", -ENOTSUP, "'__class__' of a str is not known"},
		{"{{ list.append(1) }}", -ENOTSUP, "'append' of a list is not known"},
		{"{{ 2 ** 3 }}", -ENOTSUP, "'**' is not known"},
		{"{{ f(*list) }}", -ENOTSUP, "arguments out of a list"},
		{"{{ '\xc3\xa9'|upper }}", -ENOTSUP, "not ASCII"},
		{"{{ messages|map(attribute=1.5)|list }}", -ENOTSUP, "a float as an attribute's"},
		{"{{ messages|map(attribute=messages)|list }}", -ENOTSUP, "a list as an attribute"},
		{"{{ ('b'|safe|string) + 'a' }}", -ENOTSUP, "'safe' is put together"},
		{"{{ ('b'|safe).upper() }}", -ENOTSUP, "'upper' of a text from the filter 'safe'"},
		{"{{ ('b'|safe)['upper']() }}", -ENOTSUP, "'upper' of a text from the filter"},
		{"{{ ('b'|safe)[0] }}", -ENOTSUP, "an element of a text from the filter 'safe'"},
		{"{{ ('b'|safe)[1:] }}", -ENOTSUP, "a slice of a text from the filter 'safe'"},
		{"{{ ('b'|safe) * 2 }}", -ENOTSUP, "'safe' is repeated"},
		{"{{ ['b'|safe] }}", -ENOTSUP, "with a text from the filter 'safe'"},
		{"{{ 'a\\x0cb'|indent }}", -ENOTSUP, "indent of lines that do not end by \\n"},
		{"{{ 'a\\x1cb'|indent }}", -ENOTSUP, "indent of lines that do not end by \\n"},
		{"{{ 'a\\u0085b'|indent }}", -ENOTSUP, "indent of lines that do not end by \\n"},
		{"{{ 'a\\u2029b'|indent }}", -ENOTSUP, "indent of lines that do not end by \\n"},
		{"{{ 5|indent }}", -EINVAL, "indent of a int"},
		{"{{ missing is callable }}", -ENOTSUP, "whether a undefined value is callable"},
		{"{% for a in list %}{{ loop is callable }}{% endfor %}", -ENOTSUP,
		 "whether a loop is callable"},
		{"{{ messages|map(attribute='role')|last }}", -EINVAL, "last of a generator"},
		{"{{ 'a' + ('b'|safe) }}", -ENOTSUP, "'safe'"},
		{"{% for a in b recursive %}{% endfor %}", -ENOTSUP, "recursive"},
		{"{% set ns=namespace(done=false) %}{% for m in messages if not ns.done %}"
		 "{{ m.role }}{% set ns.done=true %}{% endfor %}",
		 -ENOTSUP, "a loop's condition depends on what the loop sets"},
		{"{% set ns=namespace(late=false) %}{% for i in [1, 2] if ns.late or i == 1 %}"
		 "{% set ns.late=true %}{% endfor %}",
		 -ENOTSUP, "a loop's condition depends on what the loop sets"},
		{"{% set ns=namespace(n=0) %}{% macro m() %}{% set ns.n = ns.n + 1 %}{% endmacro %}"
		 "{% for i in [1] if m() == '' %}{{ ns.n }}{% endfor %}",
		 -ENOTSUP, "a loop's condition sets an attribute"},
		{"{% set ns = namespace() %}{% with z = 1 %}{% macro m() %}{{ z }}{% endmacro %}"
		 "{% set ns.f = m %}{% endwith %}{{ ns.f() }}",
		 -ENOTSUP, "a macro uses 'z' of a block that has ended"},
		{"{% macro a() %}{% generation %}{% endgeneration %}{% endmacro %}", -ENOTSUP,
		 "a generation block within a macro"},
		{"{{ raise_exception('no ' + 'tools') }}", -EINVAL,
		 "refuses the conversation: no tools"},
		{"{{ missing.a }}", -EINVAL, "'missing' is undefined"},
		{"{{ missing + 1 }}", -EINVAL, "'missing' is undefined"},
		{"{{ 'a' + 1 }}", -EINVAL, "'+' of a str and a int"},
		{"{{ 1 / 0 }}", -EINVAL, "division by zero"},
		{"{{ tools|length }}", -EINVAL, "a None has no length"},
		{"{% if 1 %}", -EINVAL, "is missing at the end"},
		{"{{ 1 ", -EINVAL, "a tag has no '}}'"},
		{"{{ (1] }}", -EINVAL, "closes nothing"},
		{"{% break %}", -EINVAL, "outside of a loop"},
		{"\xff", -EINVAL, "byte 0 is no UTF-8"},
		{"{{ 'a' ~ eos_token }}", -ENODATA,
		 "line 1: eos_token is written, and has no value"},
	};
	char *text;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++)
		unit_fails(render(cases[i].template, &text), &err, cases[i].rc, cases[i].part);
}
END_TEST

START_TEST(a_hostile_template_ends)
{
	static const char *const cases[] = {
		"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
		"{% set ns = namespace(s='xxxxxxxxxxxxxxxx') %}{% for a in range(99999) %}"
		"{% set ns.s = ns.s + ns.s %}{% endfor %}",
		"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
		"{{ 'x' * 999999999999 }}",
		"{{ range(99999999) }}",
		"{% set ns = namespace(l=[1]) %}{% for a in range(999) %}{% set ns.l = [ns.l, "
		"ns.l] %}{% endfor %}{{ ns.l|tojson }}",
		"{{ ('a' * 1000000).strip('b' * 999999 ~ 'a') }}",
		"{{ ('a' * 1000000).rstrip('b' * 999999 ~ 'a') }}",
		"{% set s = 'a' * 1000000 %}{% for a in range(99999) %}{{ s.startswith(s) }}"
		"{{ s.endswith(s) }}{% endfor %}",
		"{% set s = 'a' * 1000000 %}{% for a in range(99999) %}{{ [deep]|map(attribute=s)|"
		"list|length }}{% endfor %}",
	};
	char *text;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++)
		ck_assert_int_ne(render(cases[i], &text), 0);
}
END_TEST

/* So many copies of `part` between two texts; "%05d" in it is the number of each. */
static char *repeated(const char *begin, const char *part, unsigned times, const char *end)
{
	const char *number = strstr(part, "%05d");
	struct mfs_buf out = {0};

	mfs_buf_adds(&out, begin);
	for (unsigned i = 0; i < times; i++)
		if (number)
			mfs_buf_printf(&out, "%.*s%05u%s", (int)(number - part), part, i,
				       number + strlen("%05d"));
		else
			mfs_buf_adds(&out, part);
	mfs_buf_add(&out, end, strlen(end) + 1);
	ck_assert(!out.failed);
	return out.data;
}

START_TEST(a_large_template_ends)
{
	static const struct {
		const char *begin, *part;
		unsigned times;
		const char *end, *want;
	} cases[] = {
		{"", "{% set v%05d = 1 %}", 3000,
		 "{% for i in range(99999) %}{% if v00000 %}{% endif %}{% endfor %}",
		 "more work than a conversation needs"},
		{"{% macro m(", "a%05d,", 20000, "b) %}{% endmacro %}{{ m(b=1, c=2) }}",
		 "more work than a conversation needs"},
		{"{{ [", "1,", 500000, "] }}", "more parts than a template has"},
		{"{{ f(", "1,", 500000, ") }}", "more parts than a template has"},
		{"{% set ", "a,", 500000, "b = 1 %}", "more parts than a template has"},
		{"", "12345678", 131073, "", "1048584 bytes, more than the limit of 1048576"},
	};
	char *template, *text;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++) {
		template = repeated(cases[i].begin, cases[i].part, cases[i].times, cases[i].end);
		unit_fails(render(template, &text), &err, -ENOTSUP, cases[i].want);
		free(template);
	}
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("template");
	TCase *c = unit_case(s, "template", a_template_is_rendered_as_jinja_renders_it);

	tcase_add_test(c, what_is_not_known_is_refused_by_its_name);
	tcase_add_test(c, a_hostile_template_ends);
	tcase_add_test(c, a_large_template_ends);
	return s;
}
