/* Numbers and boxes for people: fs/cli/text.h, fs/cli/progress.h. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "fs/cli/progress.h"
#include "fs/cli/text.h"

START_TEST(bytes_have_three_digits_and_a_unit)
{
	static const struct {
		uint64_t n;
		const char *text;
	} cases[] = {
		{0, "0 B"},
		{999, "999 B"},
		{1000, "1.00 kB"},
		{9994, "9.99 kB"},
		{9995, "10.0 kB"},
		{99949, "99.9 kB"},
		{999499, "999 kB"},
		{999500, "1.00 MB"},
		{5000000000, "5.00 GB"},
		{UINT64_MAX, "18.4 EB"},
	};
	char text[MFS_HUMAN];

	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++)
		ck_assert_str_eq(mfs_human_bytes(cases[i].n, text), cases[i].text);
}
END_TEST

START_TEST(counts_and_times)
{
	char text[MFS_HUMAN];

	ck_assert_str_eq(mfs_human_count(8030261248, text), "8.03 B");
	ck_assert_str_eq(mfs_human_count(12, text), "12");
	ck_assert_str_eq(mfs_grouped(0, text), "0");
	ck_assert_str_eq(mfs_grouped(999, text), "999");
	ck_assert_str_eq(mfs_grouped(1000, text), "1,000");
	ck_assert_str_eq(mfs_grouped(UINT64_MAX, text), "18,446,744,073,709,551,615");
	ck_assert_str_eq(mfs_human_seconds(-1, text), "0:00");
	ck_assert_str_eq(mfs_human_seconds(59.6, text), "1:00");
	ck_assert_str_eq(mfs_human_seconds(3723, text), "1:02:03");
	ck_assert_str_eq(mfs_human_seconds(1e30, text), "99:59:59");
	ck_assert_str_eq(mfs_human_time(0, text), "-");
}
END_TEST

static char *drawn;
static size_t drawn_len;

static struct mfs_frame new_box(void)
{
	return (struct mfs_frame){
		.to = open_memstream(&drawn, &drawn_len),
		.width = 40,
		.label_width = 8,
	};
}

/* Every line of a box is as wide as the box. */
static void check_lines(const struct mfs_frame *box, unsigned want_lines)
{
	unsigned lines = 0;
	char *rest;

	ck_assert_int_eq(fclose(box->to), 0);
	for (char *line = strtok_r(drawn, "\n", &rest); line;
	     line = strtok_r(NULL, "\n", &rest), lines++)
		ck_assert_msg(mfs_text_width(line) == box->width, "%zu columns: %s",
			      mfs_text_width(line), line);
	ck_assert_uint_eq(lines, want_lines);
	free(drawn);
}

START_TEST(box_is_straight)
{
	struct mfs_frame box = new_box();

	mfs_frame_heading(&box, "a title that is too long to fit into one line of the box");
	mfs_frame_row(&box, "label", MFS_BOLD, "value");
	mfs_frame_row(&box, "", MFS_PLAIN, "%s", "");
	mfs_frame_row(&box, "words", MFS_RED, "%s", "words enough to need two lines of the box");
	mfs_frame_row(&box, "endless", MFS_PLAIN, "%s",
		      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
	mfs_frame_row(&box, "a label beyond its column", MFS_PLAIN, "%s", "value");
	mfs_frame_row(&box, "größe", MFS_PLAIN, "%s", "übergroße Länge, über den Rand hinüber");
	mfs_frame_heading(&box, "");
	mfs_frame_end(&box);
	check_lines(&box, 12);
}
END_TEST

START_TEST(names_cannot_reach_the_terminal)
{
	struct mfs_frame box = new_box();

	mfs_frame_heading(&box, "x");
	mfs_frame_row(&box, "name", MFS_PLAIN, "%s", "a\033[31mb\nc\177");
	mfs_frame_end(&box);
	fflush(box.to);
	ck_assert_ptr_null(strchr(drawn, '\033'));
	ck_assert_ptr_null(strchr(drawn, '\177'));
	check_lines(&box, 3);
}
END_TEST

START_TEST(progress_is_for_terminals)
{
	FILE *to = tmpfile();
	struct mfs_progress p;

	mfs_progress_init(&p, to, 0, 100);
	mfs_progress_update(&p, "file", 50);
	mfs_progress_clear(&p);
	ck_assert_int_eq(ftell(to), 0);
	ck_assert(!mfs_colours(to));
	ck_assert_uint_eq(mfs_columns(to), 90);
	fclose(to);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("text");
	TCase *c = unit_case(s, "numbers", bytes_have_three_digits_and_a_unit);

	tcase_add_test(c, counts_and_times);
	c = unit_case(s, "box", box_is_straight);
	tcase_add_test(c, names_cannot_reach_the_terminal);
	tcase_add_test(c, progress_is_for_terminals);
	return s;
}
