#include "fs/source/root_changes.h"

#include <stdio.h>
#include <string.h>

#define SENTENCE 1200 /* bytes: a name and a reason */

/* The iteration of a name; NULL: there is none. */
static struct mfs_iteration *find(const struct mfs_root_snapshot *s, const char *name)
{
	for (uint32_t i = 0; i < s->count; i++)
		if (!strcmp(mfs_iteration_name(s->iterations[i]), name))
			return s->iterations[i];
	return NULL;
}

static bool is_shown(const struct mfs_iteration *it)
{
	return it && !mfs_iteration_reason(it);
}

static void say_gone(const struct mfs_root_snapshot *now, const char *name,
		     void (*say)(void *arg, const char *sentence), void *arg)
{
	const struct mfs_iteration *it = find(now, name);
	char text[SENTENCE];

	if (is_shown(it))
		return;
	if (it)
		snprintf(text, sizeof(text), "%s is no longer shown: %s", name,
			 mfs_iteration_reason(it));
	else
		snprintf(text, sizeof(text), "%s was deleted", name);
	say(arg, text);
}

static void say_come(const struct mfs_root_snapshot *before, const struct mfs_iteration *it,
		     void (*say)(void *arg, const char *sentence), void *arg)
{
	const char *name = mfs_iteration_name(it);
	const struct mfs_iteration *was = find(before, name);
	char text[SENTENCE];

	if (was == it)
		return;
	snprintf(text, sizeof(text), "%s %s", name, is_shown(was) ? "was saved again" : "is new");
	say(arg, text);
}

static void say_latest(const struct mfs_root_snapshot *before, const struct mfs_root_snapshot *now,
		       void (*say)(void *arg, const char *sentence), void *arg)
{
	const char *was = before->latest ? mfs_iteration_name(before->latest) : "";
	const char *is = now->latest ? mfs_iteration_name(now->latest) : "";
	char text[SENTENCE];

	if (!strcmp(was, is))
		return;
	if (*is)
		snprintf(text, sizeof(text), "latest is %s", is);
	else
		snprintf(text, sizeof(text), "there is no latest: %s", now->latest_reason);
	say(arg, text);
}

void mfs_root_say_changes(const struct mfs_root_snapshot *before,
			  const struct mfs_root_snapshot *now,
			  void (*say)(void *arg, const char *sentence), void *arg)
{
	for (uint32_t i = 0; i < before->count; i++)
		if (is_shown(before->iterations[i]))
			say_gone(now, mfs_iteration_name(before->iterations[i]), say, arg);
	for (uint32_t i = 0; i < now->count; i++)
		if (is_shown(now->iterations[i]))
			say_come(before, now->iterations[i], say, arg);
	say_latest(before, now, say, arg);
}
