/* The command line: fs/cli/options.h. */
#include "tests/unit/unit.h"

#include <glob.h>
#include <mntent.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/array.h"
#include "fs/cli/options.h"
#include "fs/fuse/remount.h"

START_TEST(sizes_have_units)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {
		{"0", 0},
		{"4096", 4096},
		{"1B", 1},
		{"5GB", 5000000000},
		{"3KB", 3000},
		{"3KiB", 3072},
		{"7MB", 7000000},
		{"7MiB", 7340032},
		{"2GiB", 1ull << 31},
		{"1TB", 1000000000000},
		{"1TiB", 1ull << 40},
		{"5gb", 5000000000},
	};
	static const char *const bad[] = {"",
					  "GB",
					  "-1",
					  "+1",
					  " 1",
					  "1 GB",
					  "1.5GB",
					  "1K",
					  "5XB",
					  "0x10",
					  "1GBs",
					  "18446744073709551616",
					  "17179869184GiB"};
	uint64_t v;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(good); i++) {
		ck_assert_msg(!mfs_parse_size(good[i].text, &v), "%s", good[i].text);
		ck_assert_uint_eq(v, good[i].bytes);
	}
	for (size_t i = 0; i < MFS_ARRAY_SIZE(bad); i++) {
		v = 42;
		ck_assert_msg(mfs_parse_size(bad[i], &v) == -EINVAL, "%s", bad[i]);
		ck_assert_uint_eq(v, 42);
	}
}
END_TEST

START_TEST(view_options)
{
	struct mfs_options opt = {0};
	struct mfs_error err;

	unit_ok(mfs_options_parse_o("arch=gpt2,ref=/a\\,b\\\\c,,vocab_size=1000", &opt, &err),
		&err);
	unit_ok(mfs_options_parse_o("shard_size=2MiB,arch=llama", &opt, &err), &err);
	ck_assert_str_eq(opt.view.arch, "llama");
	ck_assert_str_eq(opt.view.ref, "/a,b\\c");
	ck_assert_uint_eq(opt.view.vocab_size, 1000);
	ck_assert_uint_eq(opt.view.shard_size, 2 << 20);
	unit_ok(mfs_options_parse_o("shard_size=5B,arrow_batch=65536", &opt, &err), &err);
	ck_assert_uint_eq(opt.view.shard_size, 5);
	ck_assert_uint_eq(opt.data.arrow_batch, 65536);
	ck_assert_uint_eq(opt.fuse.len, 0);
	unit_ok(mfs_options_parse_o("vocab_size=tokenizer", &opt, &err), &err);
	ck_assert(opt.view.vocab_size == MFS_VOCAB_TOKENIZER);
	ck_assert_uint_eq(opt.data.vocab_size, 0); /* the last word counts */
	ck_assert(!opt.prefetch_given);
	unit_ok(mfs_options_parse_o("prefetch=2", &opt, &err), &err);
	ck_assert(opt.prefetch == 2);
	unit_ok(mfs_options_parse_o("prefetch=8,prefetch=0", &opt, &err), &err);
	ck_assert(opt.prefetch_given && !opt.prefetch);
	mfs_options_release(&opt);
	ck_assert_ptr_null(opt.view.arch);
}
END_TEST

START_TEST(megatron_options)
{
	struct mfs_options opt = {0};
	struct mfs_error err;

	ck_assert(opt.view.spec == MFS_VIEW_LAYER_SPEC_SOURCE && !opt.view.no_optim);
	unit_ok(mfs_options_parse_o("spec=local", &opt, &err), &err);
	ck_assert(opt.view.spec == MFS_VIEW_LAYER_SPEC_LOCAL && !opt.view.no_optim);
	unit_ok(mfs_options_parse_o("no_optim,spec=te,stack_experts", &opt, &err), &err);
	ck_assert(opt.view.stack_experts);
	ck_assert(opt.view.spec == MFS_VIEW_LAYER_SPEC_TE && opt.view.no_optim);
	ck_assert(!opt.view.language);
	opt.view.no_optim = false;
	unit_ok(mfs_options_parse_o("part=language", &opt, &err), &err);
	ck_assert(opt.view.language && opt.view.no_optim);
	unit_fails(mfs_options_parse_o("part=vision", &opt, &err), &err, -EINVAL,
		   "takes 'language', not 'vision'");
	ck_assert_uint_eq(opt.fuse.len, 0);
	mfs_options_release(&opt);
}
END_TEST

START_TEST(what_libfuse_is_told)
{
	struct mfs_options opt = {0};
	struct mfs_error err;

	unit_ok(mfs_options_parse_o("ro,allow_other,nosuid,fsname=a\\,b\\\\,user=me,user,_netdev,"
				    "x-systemd.automount,X-mount.mkdir=755,max_read=65536",
				    &opt, &err),
		&err);
	ck_assert(opt.allow_other);
	ck_assert_str_eq(opt.fuse.data, "allow_other,fsname=a\\,b\\\\,max_read=65536");
	mfs_options_release(&opt);
}
END_TEST

START_TEST(what_is_written)
{
	struct mfs_options opt = {0};
	struct mfs_error err;

	ck_assert(!opt.read_only);
	unit_ok(mfs_options_parse_o("rw,dataset_cache=/a\\,b", &opt, &err), &err);
	ck_assert_str_eq(opt.data.cache, "/a,b");
	ck_assert(!opt.read_only);
	unit_ok(mfs_options_parse_o("ro", &opt, &err), &err);
	ck_assert(opt.read_only);
	unit_ok(mfs_options_parse_o("rw", &opt, &err), &err);
	ck_assert(!opt.read_only);
	unit_ok(mfs_options_parse_o("dataset_cache=here", &opt, &err), &err);
	ck_assert_int_eq(opt.data.cache[0], '/');
	mfs_options_release(&opt);
	unit_ok(mfs_options_parse_o("rw,ro", &opt, &err), &err);
	mfs_options_release(&opt);
}
END_TEST

START_TEST(refused_options)
{
	static const struct {
		const char *list, *part;
		int code;
	} cases[] = {
		{"rw", "read-only", -EROFS},
		{"ro,rw", "read-only", -EROFS},
		{"dataset_cache=", "dataset_cache", -EINVAL},
		{"frobnicate", "frobnicate", -EINVAL},
		{"frobnicate=1", "frobnicate", -EINVAL},
		{"arch", "arch", -EINVAL},
		{"arch=", "arch", -EINVAL},
		{"allow_other=1", "takes no value", -EINVAL},
		{"vocab_size=0", "vocab_size", -EINVAL},
		{"vocab_size=-5", "vocab_size", -EINVAL},
		{"vocab_size=99999999999", "vocab_size", -EINVAL},
		{"shard_size=0", "shard_size", -EINVAL},
		{"shard_size=5XB", "5XB", -EINVAL},
		{"shard_size=5", "needs a unit: 5GB, 5MiB", -EINVAL},
		{"arrow_batch=65535", "65535B", -EINVAL},
		{"split=99,1,0", "use slashes, split=99/1/0", -EINVAL},
		{"split=99.5,.5,no_optim", "split=99.5/.5", -EINVAL},
		{"split=1,no_optim,1", "unknown option '-o 1'", -EINVAL},
		{"no_optm", "did you mean '-o no_optim'?", -EINVAL},
		{"dtaa=/x", "did you mean '-o data'?", -EINVAL},
		{"spec", "spec", -EINVAL},
		{"spec=", "spec", -EINVAL},
		{"spec=megatron", "'local' or 'te', not 'megatron'", -EINVAL},
		{"no_optim=1", "takes no value", -EINVAL},
		{"prefetch", "prefetch", -EINVAL},
		{"prefetch=9", "from 0 to 8, not '9'", -EINVAL},
		{"prefetch=-1", "from 0 to 8, not '-1'", -EINVAL},
		{"prefetch=2x", "from 0 to 8, not '2x'", -EINVAL},
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++) {
		struct mfs_options opt = {0};
		struct mfs_error err;

		unit_fails(mfs_options_parse_o(cases[i].list, &opt, &err), &err, cases[i].code,
			   cases[i].part);
		mfs_options_release(&opt);
	}
}
END_TEST

START_TEST(settings_are_kept_as_they_were_given)
{
	static const char expected[] = "ro\0arch=gpt2\0data=/a,b\0data=/c\0no_optim\0arch=llama";
	struct mfs_settings_page page = {.offset = 3};
	struct mfs_options opt = {0};
	struct mfs_buf all = {0};
	struct mfs_error err;

	unit_ok(mfs_options_parse_o("rw,remount,arch=gpt2,data=/a\\,b,data=/c,ro,no_optim", &opt,
				    &err),
		&err);
	unit_ok(mfs_options_parse_o("nofail,x-a=b,user_id=0,arch=llama", &opt, &err), &err);
	ck_assert(opt.remount && opt.read_only && !opt.rw_given);
	ck_assert_int_eq(mfs_settings_make(&opt, false, &all), 0);
	ck_assert_uint_eq(all.len, sizeof(expected));
	ck_assert_mem_eq(all.data, expected, sizeof(expected));

	mfs_settings_page(&all, &page);
	ck_assert_uint_eq(page.total, sizeof(expected));
	ck_assert_mem_eq(page.text, expected + 3, sizeof(expected) - 3);
	ck_assert_int_eq(page.text[sizeof(page.text) - 1], 0);
	page.offset = UINT32_MAX;
	mfs_settings_page(&all, &page);
	ck_assert_int_eq(page.text[0], 0);
	mfs_buf_release(&all);
	mfs_options_release(&opt);
}
END_TEST

static int parse(struct mfs_options *opt, struct mfs_error *err, const char *line)
{
	char copy[256], *argv[16] = {"mcorefs"}, *rest = copy;
	int argc = 1;

	snprintf(copy, sizeof(copy), "%s", line);
	while ((argv[argc] = strtok_r(rest, " ", &rest)))
		argc++;
	memset(opt, 0, sizeof(*opt));
	return mfs_options_parse_mount(argc, argv, opt, err);
}

START_TEST(mount_line)
{
	struct mfs_options opt;
	struct mfs_error err;

	unit_ok(parse(&opt, &err, "-o arch=llama /src -s /mnt -oro -f"), &err);
	ck_assert(opt.foreground && opt.single_thread && !opt.debug);
	ck_assert_str_eq(opt.view.arch, "llama");
	mfs_options_release(&opt);
	unit_ok(parse(&opt, &err, "/src /mnt -d"), &err);
	ck_assert(opt.foreground && opt.debug);
	mfs_options_release(&opt);
	unit_ok(parse(&opt, &err, "-f -- -src -mnt"), &err);
	mfs_options_release(&opt);

	unit_fails(parse(&opt, &err, ""), &err, -EINVAL, "SOURCE is missing");
	unit_fails(parse(&opt, &err, "/src"), &err, -EINVAL, "MOUNTPOINT is missing");
	unit_fails(parse(&opt, &err, "/src /mnt /more"), &err, -EINVAL, "/more");
	unit_fails(parse(&opt, &err, "/src /mnt -o"), &err, -EINVAL, "-o");
	unit_fails(parse(&opt, &err, "/src /mnt -x"), &err, -EINVAL, "-x");
	unit_fails(parse(&opt, &err, "/src /mnt --long"), &err, -EINVAL, "--long");
}
END_TEST

/* The examples are lines of fstab(5). */
START_TEST(the_examples_are_lines_of_fstab)
{
	struct mntent *line;
	unsigned count = 0;
	glob_t found;

	ck_assert_int_eq(glob("configs/mount/*.conf", 0, NULL, &found), 0);
	for (size_t i = 0; i < found.gl_pathc; i++) {
		FILE *file = setmntent(found.gl_pathv[i], "r");

		ck_assert_ptr_nonnull(file);
		for (; (line = getmntent(file)); count++) {
			struct mfs_options opt = {0};
			struct mfs_error err;

			ck_assert_str_eq(line->mnt_type, "mcorefs");
			unit_ok(mfs_options_parse_o(line->mnt_opts, &opt, &err), &err);
			mfs_options_release(&opt);
		}
		endmntent(file);
	}
	globfree(&found);
	ck_assert_uint_ge(count, 3);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("options");
	TCase *c = unit_case(s, "values", sizes_have_units);

	tcase_add_test(c, view_options);
	tcase_add_test(c, megatron_options);
	tcase_add_test(c, what_libfuse_is_told);
	tcase_add_test(c, what_is_written);
	tcase_add_test(c, settings_are_kept_as_they_were_given);
	tcase_add_test(c, the_examples_are_lines_of_fstab);
	tcase_add_test(c, refused_options);
	unit_case(s, "mount", mount_line);
	return s;
}
