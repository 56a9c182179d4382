/* Lists of the Hub's protocol, and their parts: fs/gateway/hub/hub_list.c, hub_page.c,
 * and fs/gateway/repos/commits.c. */
#include "tests/unit/unit.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/gateway/gateway.h"
#include "fs/gateway/repos/repos_i.h"
#include "fs/source/root.h"
#include "fs/view/view.h"
#include "fs/view/views.h"

#define LLAMA	   "weights/llama-torch-tp2-pp2"
#define ITERATIONS 12 /* more than stay open */

static struct mfs_error err;
static const struct mfs_view_options options = {.vocab_size = 1000};
static struct mfs_gateway gateway;
static char link_header[1024];

static const char *header(const struct mfs_request *q, const char *name)
{
	if (!strcmp(name, "Host"))
		return "gw:8080";
	return !strcmp(name, "Authorization") ? q->headers : NULL;
}

/* Where the next part of a list is, as a target; "": nowhere. */
static void note_link(const struct mfs_reply *a)
{
	static const char before[] = "<http://gw:8080", after[] = ">; rel=\"next\"";

	*link_header = '\0';
	for (unsigned i = 0; i < a->header_count; i++) {
		const char *value = a->headers[i].value;

		if (strcmp(a->headers[i].name, "Link"))
			continue;
		ck_assert_msg(!strncmp(value, before, sizeof(before) - 1), "%s", value);
		ck_assert_msg(strstr(value, after), "%s", value);
		snprintf(link_header, sizeof(link_header), "%.*s",
			 (int)(strlen(value) - strlen(before) - strlen(after)),
			 value + strlen(before));
	}
}

/* The JSON of a reply; the caller drops it. */
static json_t *ask(const char *target, const char *authorization, unsigned status)
{
	struct mfs_request q = {.method = MFS_METHOD_GET,
				.target = target,
				.header = header,
				.headers = authorization};
	struct mfs_reply a = {0};
	json_t *o;

	unit_ok(mfs_url_parse(target, &q.url, &err), &err);
	mfs_gateway_answer(&gateway, MFS_LISTENER_WEB, &q, &a);
	ck_assert(!a.failed);
	ck_assert_msg(a.status == status, "%s: %u instead of %u: %s", target, a.status, status,
		      a.why);
	o = json_loadb(a.text.data, a.text.len, 0, NULL);
	ck_assert_ptr_nonnull(o);
	note_link(&a);
	mfs_reply_release(&a);
	mfs_url_release(&q.url);
	return o;
}

/* A field of each element, with blanks between them. */
static const char *fields(const char *target, const char *field)
{
	static char text[4096];
	json_t *list = ask(target, NULL, 200), *o;
	size_t i, len = 0;

	*text = '\0';
	json_array_foreach(list, i, o) len +=
		(size_t)snprintf(text + len, sizeof(text) - len, "%s%s", i ? " " : "",
				 json_string_value(json_object_get(o, field)));
	json_decref(list);
	return text;
}

static void begin(const char *tokens)
{
	gateway = (struct mfs_gateway){.repos = mfs_repos_new(0), .access_log = -1};
	unit_ok(mfs_tokens_open(tokens, &gateway.tokens, &err), &err);
}

static void add(const char *name, const char *source)
{
	unit_ok(mfs_repos_add(gateway.repos, name, source, &options, &err), &err);
}

static void end(void)
{
	mfs_tokens_free(gateway.tokens);
	mfs_repos_free(gateway.repos);
}

START_TEST(lists_are_filtered_and_paged)
{
	begin(NULL);
	add("lab/llama-a", unit_fixture(LLAMA));
	add("lab/other", unit_fixture(LLAMA));
	add("Team/Llama-B", unit_fixture(LLAMA));
	add("lab/tales", unit_fixture("data/tales_text_document"));
	ck_assert_str_eq(fields("/api/models", "id"), "lab/llama-a lab/other Team/Llama-B");
	ck_assert_str_eq(fields("/api/models?author=lab", "id"), "lab/llama-a lab/other");
	ck_assert_str_eq(fields("/api/models?author=team", "author"), "Team");
	ck_assert_str_eq(fields("/api/models?author=la", "id"), "");
	ck_assert_str_eq(fields("/api/models?search=LLAMA", "id"), "lab/llama-a Team/Llama-B");
	ck_assert_str_eq(fields("/api/models?search=llama&author=lab", "id"), "lab/llama-a");
	ck_assert_str_eq(fields("/api/models?search=llama&search=-b", "id"), "Team/Llama-B");
	ck_assert_str_eq(fields("/api/datasets?search=tale", "id"), "lab/tales");
	ck_assert_str_eq(fields("/api/datasets?author=team", "id"), "");

	ck_assert_str_eq(fields("/api/models?limit=2", "id"), "lab/llama-a lab/other");
	ck_assert_str_eq(link_header, "/api/models?cursor=2&limit=2");
	ck_assert_str_eq(fields(link_header, "id"), "Team/Llama-B");
	ck_assert_str_eq(link_header, "");
	ck_assert_str_eq(fields("/api/models?limit=1&search=llama", "id"), "lab/llama-a");
	ck_assert_str_eq(fields(link_header, "id"), "Team/Llama-B");
	ck_assert_str_eq(link_header, "");
	ck_assert_str_eq(fields("/api/models?limit=3", "id"), "lab/llama-a lab/other Team/Llama-B");
	ck_assert_str_eq(link_header, "");
	ck_assert_str_eq(fields("/api/models?limit=0", "id"), "");
	ck_assert_str_eq(link_header, "");
	json_decref(ask("/api/models?limit=-1", NULL, 400));
	json_decref(ask("/api/models?cursor=x", NULL, 400));
	end();
}
END_TEST

/* All parts of a tree together are the tree, directories included, and all are of one commit. */
START_TEST(tree_parts)
{
	static const char tree[] =
		"/api/models/lab/x__megatron.torch.tp2-pp1/tree/main?recursive=true";
	char whole[4096], parts[4096] = "", target[1024];
	unsigned count = 0;

	begin(NULL);
	add("lab/x", unit_fixture(LLAMA));
	snprintf(whole, sizeof(whole), "%s", fields(tree, "path"));
	ck_assert_str_eq(link_header, "");
	snprintf(target, sizeof(target), "%s&limit=2", tree);
	do {
		const char *part = fields(target, "path");
		const size_t len = strlen(parts);

		snprintf(parts + len, sizeof(parts) - len, "%s%s", len ? " " : "", part);
		snprintf(target, sizeof(target), "%s", link_header);
		ck_assert(!*target || !strstr(target, "main"));
		ck_assert(!*target || strstr(target, "&recursive=true&limit=2"));
		count++;
	} while (*target);
	ck_assert_uint_gt(count, 2);
	ck_assert_str_eq(parts, whole);
	json_decref(ask("/api/models/lab/x/tree/main?limit=a", NULL, 400));
	end();
}
END_TEST

static void make_run(char path[PATH_MAX])
{
	char command[4 * PATH_MAX];

	snprintf(path, PATH_MAX, "%s/run", unit_tmpdir());
	snprintf(command, sizeof(command),
		 "cp -a '%s' '%s' && cd '%s' && for i in $(seq 1 %d); do "
		 "cp -a iter_0000040 iter_00000$((40 - i)); done",
		 unit_fixture(LLAMA), path, path, ITERATIONS - 1);
	ck_assert_int_eq(system(command), 0);
}

/* Each iteration is a commit, the newest first, and one can ask for each. */
START_TEST(each_iteration_is_a_commit)
{
	static const char first[] = "/api/models/lab/x/commits/main";
	char path[PATH_MAX], target[256], ids[4096];
	struct mfs_revision r;
	enum mfs_absent_kind what;
	json_t *list, *o;
	size_t i;

	make_run(path);
	begin(NULL);
	add("lab/x", path);
	list = ask(first, NULL, 200);
	ck_assert_uint_eq(json_array_size(list), ITERATIONS);
	ck_assert_str_eq(link_header, "");
	json_array_foreach(list, i, o)
	{
		const char *id = json_string_value(json_object_get(o, "id"));
		char name[32];

		snprintf(name, sizeof(name), "iter_%07d", 40 - (int)i);
		ck_assert_str_eq(json_string_value(json_object_get(o, "title")), name);
		unit_ok(mfs_repos_hold(gateway.repos, MFS_REPO_MODEL, "lab/x", id, &r, &what, &err),
			&err);
		ck_assert_str_eq(r.iteration, name);
		mfs_revision_drop(&r);
		ck_assert_ptr_nonnull(json_object_get(o, "date"));
		ck_assert(json_is_array(json_object_get(o, "authors")));
		ck_assert_ptr_null(json_object_get(o, "formatted"));
	}
	json_decref(list);
	snprintf(ids, sizeof(ids), "%s", fields(first, "id"));
	ck_assert_str_eq(fields("/api/models/lab/x/commits/30", "title"),
			 "iter_0000030 iter_0000029");

	ck_assert_str_eq(
		fields("/api/models/lab/x/commits/main?limit=11&expand[]=formatted", "title"),
		"iter_0000040 iter_0000039 iter_0000038 iter_0000037 iter_0000036 "
		"iter_0000035 iter_0000034 iter_0000033 iter_0000032 iter_0000031 "
		"iter_0000030");
	snprintf(target, sizeof(target),
		 "/api/models/lab/x/commits/%.40s?cursor=11&limit=11&expand%%5B%%5D=formatted",
		 ids);
	ck_assert_str_eq(link_header, target);
	list = ask(target, NULL, 200);
	ck_assert_uint_eq(json_array_size(list), 1);
	o = json_object_get(json_array_get(list, 0), "formatted");
	ck_assert_str_eq(json_string_value(json_object_get(o, "title")), "iter_0000029");
	json_decref(list);
	json_decref(ask("/api/models/lab/x/commits/41", NULL, 404));
	end();
}
END_TEST

/* A list that was asked for once opens nothing again. */
START_TEST(commits_are_noted)
{
	const struct mfs_root_snapshot *s;
	struct mfs_shared_root *shared;
	char path[PATH_MAX];
	json_t *o, *tags, *tag;
	size_t i;

	make_run(path);
	begin(NULL);
	add("lab/x", path);
	unit_ok(mfs_roots_hold(gateway.repos->roots, path, &options, &shared, &err), &err);
	s = mfs_root_snapshot(shared->root);
	o = ask("/api/models/lab/x/refs", NULL, 200);
	tags = json_object_get(o, "tags");
	ck_assert_uint_eq(json_array_size(tags), ITERATIONS);
	json_array_foreach(tags, i, tag) ck_assert_uint_eq(
		strlen(json_string_value(json_object_get(tag, "targetCommit"))), MFS_COMMIT_CHARS);
	json_decref(o);
	for (i = 0; i < s->count; i++)
		mfs_open_set_close_idle(&mfs_iteration_views(s->iterations[i])->open);
	ck_assert_str_ne(fields("/api/models/lab/x/commits/main", "id"), "");
	for (i = 0; i < s->count; i++)
		ck_assert_uint_eq(mfs_open_set_count(&mfs_iteration_views(s->iterations[i])->open),
				  s->iterations[i] == s->latest);
	mfs_roots_drop(gateway.repos->roots, shared);
	end();
}
END_TEST

/* An iteration that cannot have the view has no commit of it, and hides no other: GPT-2 has no
 * 8-bit floats. */
START_TEST(impossible_view)
{
	static const char list[] = "/api/models/lab/x__hf-fp8/commits/36?limit=3";
	char path[PATH_MAX], command[4 * PATH_MAX];

	make_run(path);
	snprintf(command, sizeof(command),
		 "rm -r '%s/iter_0000035' && cp -a '%s' '%s/iter_0000035'", path,
		 unit_fixture("weights/gpt2-torch-tp2-pp2/iter_0000040"), path);
	ck_assert_int_eq(system(command), 0);
	begin(NULL);
	add("lab/x", path);
	for (int i = 0; i < 2; i++)
		ck_assert_str_eq(fields(list, "title"), "iter_0000036 iter_0000034");
	ck_assert_str_ne(link_header, "");
	ck_assert_str_eq(fields("/api/models/lab/x/commits/36?limit=3", "title"),
			 "iter_0000036 iter_0000035 iter_0000034");
	end();
}
END_TEST

/* What has no iterations has one commit, and no tag. */
START_TEST(what_has_no_iterations_has_one_commit)
{
	static const struct mfs_view_options plain = {0};
	json_t *o;

	begin(NULL);
	unit_ok(mfs_repos_add(gateway.repos, "lab/hf", unit_fixture("hf/llama-safetensors"), &plain,
			      &err),
		&err);
	add("lab/tales", unit_fixture("data/tales_text_document"));
	ck_assert_str_eq(fields("/api/models/lab/hf/commits/main", "title"), "");
	ck_assert_uint_eq(strlen(fields("/api/models/lab/hf/commits/main", "id")),
			  MFS_COMMIT_CHARS);
	ck_assert_uint_eq(strlen(fields("/api/datasets/lab/tales/commits/main", "id")),
			  MFS_COMMIT_CHARS);
	o = ask("/api/models/lab/hf/refs", NULL, 200);
	ck_assert_uint_eq(json_array_size(json_object_get(o, "tags")), 0);
	ck_assert_uint_eq(json_array_size(json_object_get(o, "branches")), 1);
	json_decref(o);
	end();
}
END_TEST

START_TEST(a_token_is_told_its_name)
{
	char path[PATH_MAX];
	json_t *o;

	unit_write(unit_tmpdir(), "t", "alice hf_alice lab/*\nall - x/*\n", 31);
	snprintf(path, sizeof(path), "%s/t", unit_tmpdir());
	chmod(path, 0600);
	begin(path);
	o = ask("/api/whoami-v2", "Bearer hf_alice", 200);
	ck_assert_str_eq(json_string_value(json_object_get(o, "name")), "alice");
	json_decref(o);
	json_decref(ask("/api/whoami-v2", "Bearer hf_alicf", 401));
	json_decref(ask("/api/whoami-v2", NULL, 401));
	end();
	begin(NULL);
	json_decref(ask("/api/whoami-v2", "Bearer hf_alice", 401));
	end();
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("gateway_lists");
	TCase *c = unit_case(s, "lists", lists_are_filtered_and_paged);

	tcase_add_test(c, tree_parts);
	tcase_add_test(c, each_iteration_is_a_commit);
	tcase_add_test(c, commits_are_noted);
	tcase_add_test(c, impossible_view);
	tcase_add_test(c, what_has_no_iterations_has_one_commit);
	tcase_add_test(c, a_token_is_told_its_name);
	return s;
}
