#define _GNU_SOURCE
#include "fs/fuse/remount.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "fs/data/data.h"
#include "fs/daemon/mountpoint.h"

/* ---- settings ---- */

int mfs_settings_make(const struct mfs_options *opt, bool writable, struct mfs_buf *ret)
{
	mfs_buf_add(ret, writable ? "rw" : "ro", 3);
	if (opt->settings.len)
		mfs_buf_add(ret, opt->settings.data, opt->settings.len);
	return ret->failed ? -ENOMEM : 0;
}

void mfs_settings_page(const struct mfs_buf *settings, struct mfs_settings_page *page)
{
	size_t left = page->offset < settings->len ? settings->len - page->offset : 0;
	size_t n = left < sizeof(page->text) ? left : sizeof(page->text);

	memset(page->text, 0, sizeof(page->text));
	if (n)
		memcpy(page->text, settings->data + page->offset, n);
	page->total = (uint32_t)settings->len;
}

static int ask_pages(int fd, struct mfs_buf *ret)
{
	struct mfs_settings_page page;

	do {
		page = (struct mfs_settings_page){.offset = (uint32_t)ret->len};
		if (ioctl(fd, MFS_IOC_SETTINGS, &page))
			return -errno;
		mfs_buf_add(ret, page.text,
			    page.total - ret->len < sizeof(page.text) ? page.total - ret->len
								      : sizeof(page.text));
	} while (!ret->failed && ret->len < page.total);
	return ret->failed ? -ENOMEM : 0;
}

static int ask(const char *place, struct mfs_buf *ret, struct mfs_error *err)
{
	int fd = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = fd < 0 ? -errno : 0;

	if (!rc) {
		rc = ask_pages(fd, ret);
		close(fd);
	}
	if (!rc && (!ret->len || ret->data[ret->len - 1]))
		rc = -EPROTO;
	if (rc)
		return mfs_fail(err, rc, "it does not say what it was mounted with: %s",
				strerror(-rc));
	return 0;
}

/* ---- what is in force ---- */

struct mount {
	struct mfs_mount_entry entry;
	struct mfs_buf settings;
	unsigned long flags; /* MS_* */
};

static const struct {
	const char *name;
	unsigned long flag;
} flags[] = {
	{"ro", MS_RDONLY},	   {"nosuid", MS_NOSUID},   {"nodev", MS_NODEV},
	{"noexec", MS_NOEXEC},	   {"noatime", MS_NOATIME}, {"nodiratime", MS_NODIRATIME},
	{"relatime", MS_RELATIME},
};

/* True if a list like "ro,user_id=0" has the word. */
static bool lists(const char *list, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',')
		if (strcspn(p, ",") == len && !strncmp(p, word, len))
			return true;
	return false;
}

static unsigned long flags_of(const struct mfs_mount_entry *entry)
{
	unsigned long ret = lists(entry->options, "ro") ? MS_RDONLY : 0;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(flags); i++)
		if (lists(entry->flags, flags[i].name))
			ret |= flags[i].flag;
	return ret;
}

/* The last setting of that word's name that stands before end, the word itself counting first;
 * NULL: none. */
static const char *setting_like(const struct mfs_buf *settings, const char *word)
{
	size_t name = strcspn(word, "=");
	const char *found = NULL;

	for (size_t i = 0; i < settings->len; i += strlen(settings->data + i) + 1) {
		const char *s = settings->data + i;

		if (strcspn(s, "=") != name || strncmp(s, word, name))
			continue;
		/* data= may be given several times. Of other options the last one counts. */
		if (!strncmp(word, "data=", 5) && found && !strcmp(found, word))
			continue;
		found = s;
	}
	return found;
}

static int check_word(const struct mount *m, const char *word, struct mfs_error *err)
{
	const char *now = setting_like(&m->settings, word);

	if (!strcmp(word, "noexec") || (now && !strcmp(now, word)) || lists(m->entry.options, word))
		return 0;
	if (!strcmp(word, "exec") && !(m->flags & MS_NOEXEC))
		return 0;
	return mfs_fail(err, -EINVAL,
			"option '%s' is not in force%s%s: unmount it and mount it again", word,
			now ? ", but " : "", now ? now : "");
}

static int check_words(const struct mount *m, const struct mfs_buf *words, struct mfs_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < words->len && !rc; i += strlen(words->data + i) + 1)
		rc = check_word(m, words->data + i, err);
	return rc;
}

/* mount(8) passes the name that the kernel shows; a person gives a path. */
static int check_source(const struct mount *m, const char *source, struct mfs_error *err)
{
	char *real = NULL;
	bool same;

	if (setting_like(&m->settings, "fsname=") || !strcmp(source, m->entry.source))
		return 0;
	same = !mfs_data_path(source, &real, NULL) && !strcmp(real, m->entry.source);
	free(real);
	return same ? 0
		    : mfs_fail(err, -EINVAL, "%s is mounted there, not %s", m->entry.source,
			       source);
}

/* ---- the change ---- */

static int change(const struct mount *m, const struct mfs_options *opt, struct mfs_error *err)
{
	unsigned long want = m->flags;

	if (opt->read_only)
		want |= MS_RDONLY;
	if (setting_like(&opt->settings, "noexec"))
		want |= MS_NOEXEC;
	if (opt->rw_given && strcmp(m->settings.data, "rw"))
		return mfs_fail(
			err, -EROFS,
			"option 'rw' is refused: it was mounted without 'dataset_cache', so "
			"nothing can be written");
	if (opt->rw_given)
		want &= ~(unsigned long)MS_RDONLY;
	if (want != m->flags &&
	    mount(m->entry.source, m->entry.place, NULL, MS_REMOUNT | want, NULL))
		return mfs_fail(err, -errno, "%s", strerror(errno));
	return 0;
}

static int remount(struct mount *m, const struct mfs_options *opt, struct mfs_error *err)
{
	int rc;

	if (strcmp(m->entry.type, MFS_MOUNT_TYPE))
		return mfs_fail(err, -ENOENT, "it is not a mount of mcorefs");
	if (mfs_mountpoint_is_dead(m->entry.place))
		return mfs_fail(err, -ENOTCONN,
				"its process has ended: mount it again, without 'remount'");
	m->flags = flags_of(&m->entry);
	rc = ask(m->entry.place, &m->settings, err);
	if (!rc)
		rc = check_source(m, opt->source, err);
	if (!rc)
		rc = check_words(m, &opt->settings, err);
	return rc ? rc : change(m, opt, err);
}

int mfs_remount(const struct mfs_options *opt, struct mfs_error *err)
{
	char place[PATH_MAX];
	struct mount m = {0};
	int rc;

	if (!realpath(opt->mountpoint, place))
		return mfs_fail(err, -errno, "%s", strerror(errno));
	rc = mfs_mountpoint_find(place, &m.entry, err);
	if (rc)
		return rc;
	rc = remount(&m, opt, err);
	mfs_buf_release(&m.settings);
	mfs_mount_entry_release(&m.entry);
	return rc;
}
