/* Objects of a server that fails, and their cache: formats/remote/cache.h. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "formats/base/array.h"
#include "formats/base/clock.h"
#include "formats/io/whole.h"
#include "formats/remote/cache.h"
#include "formats/remote/cache_i.h"
#include "tests/unit/range_server.h"

#define MIB  (1ull << 20)
#define SIZE (10 * MIB + 12345)

static struct range_server server;
static struct mfs_cache *cache;
static struct mfs_object *object;
static struct mfs_error err;
static char url[100], dir[300], key[MFS_KEY];

static struct mfs_cache *open_cache(void)
{
	const struct mfs_cache_options opt = {
		.dir = dir, .size = 16 * MIB, .connections = 4, .http = {.timeout = 2}};
	struct mfs_cache *c = NULL;

	unit_ok(mfs_cache_open(&opt, &c, &err), &err);
	return c;
}

static struct mfs_object *open_object(struct mfs_cache *c)
{
	struct mfs_object_id id = {.url = url,
				   .etag = server.no_etag ? NULL
					   : server.weak  ? "W/\"v0\""
							  : "\"v0\"",
				   .last_modified = "Wed, 21 Oct 2015 07:28:00 GMT",
				   .size = server.size};
	struct mfs_object *o = NULL;

	unit_ok(mfs_cache_object(c, &id, &o, &err), &err);
	return o;
}

static void say_places(void)
{
	snprintf(url, sizeof(url), "http://127.0.0.1:%u/object", server.port);
	snprintf(dir, sizeof(dir), "%s/cache", unit_tmpdir());
}

static void begin(uint64_t size)
{
	memset(&server, 0, sizeof(server));
	range_start(&server, size);
	say_places();
	cache = open_cache();
	object = open_object(cache);
	memcpy(key, object->key, sizeof(key));
}

static void setup_whole_blocks(void)
{
	begin(2 * MIB);
}

static void setup(void)
{
	begin(SIZE);
}

static void teardown(void)
{
	mfs_cache_free(cache);
	range_stop(&server);
}

/* Acquires a range and reads it: 0, with the bytes compared, or the error. */
static int look(struct mfs_object *o, uint64_t off, uint64_t len)
{
	const struct mfs_backing_ops *ops = &mfs_object_backing;
	uint8_t *bytes;
	uint32_t pin;
	int fd, rc;

	rc = ops->acquire(o, off, len, &pin, &err);
	if (rc)
		return rc;
	bytes = malloc(len + 1);
	unit_ok(ops->open(o, &fd, &err), &err);
	ck_assert_int_eq(mfs_pread_whole(fd, off, bytes, len), 0);
	for (uint64_t i = 0; i < len; i++)
		if (bytes[i] != range_byte(off + i)) {
			ck_abort_msg("byte %llu is wrong", (unsigned long long)(off + i));
		}
	close(fd);
	ops->release(o, pin);
	free(bytes);
	return 0;
}

/* What the server has sent. It counts that after it has come here: so many bytes are waited for. */
static uint64_t sent(uint64_t bytes)
{
	for (int i = 0; i < 5000 && atomic_load(&server.sent) < bytes; i++)
		usleep(1000);
	return atomic_load(&server.sent);
}

START_TEST(each_byte_comes_once)
{
	unsigned asked;

	unit_ok(look(object, 3 * MIB - 5, 10), &err);
	unit_ok(look(object, 0, 0), &err);
	unit_ok(look(object, 0, SIZE), &err);
	unit_ok(look(object, SIZE - 1, 1), &err);
	asked = atomic_load(&server.requests);
	unit_ok(look(object, 0, SIZE), &err);
	ck_assert_uint_eq(atomic_load(&server.requests), asked);
	/* Each byte came once. */
	ck_assert_uint_eq(sent(SIZE), SIZE);
	ck_assert_uint_eq(mfs_cache_stats(cache).fetched, SIZE);
}
END_TEST

/* Ranges without bytes, and objects that end where a block does. */
START_TEST(nothing_to_read)
{
	const struct mfs_backing_ops *ops = &mfs_object_backing;
	uint32_t pin;

	unit_ok(look(object, 0, 0), &err);
	unit_ok(look(object, server.size, 0), &err);
	/* As many as there are pins: none is needed for nothing. */
	for (uint32_t i = 0; i <= MFS_PINS; i++)
		unit_ok(ops->acquire(object, server.size, 0, &pin, &err), &err);
	ops->release(object, pin);
	ck_assert_uint_eq(atomic_load(&server.requests), 0);
}
END_TEST

static uint32_t unused_pins(void)
{
	uint32_t count;

	pthread_mutex_lock(&cache->pins.lock);
	count = cache->pins.unused_count;
	pthread_mutex_unlock(&cache->pins.lock);
	return count;
}

/* A file that is opened again and again, as long as a mount stands (io/regular.h). */
START_TEST(opened_for_ever)
{
	for (uint32_t i = 0; i <= MFS_PINS; i++)
		unit_ok(mfs_object_backing.keep(object, &err), &err);
	/* Those of requests are given back when they have ended. */
	for (int i = 0; i < 1000 && unused_pins() < MFS_PINS - 1; i++)
		usleep(1000);
	ck_assert_uint_eq(unused_pins(), MFS_PINS - 1);
	ck_assert_uint_eq(sent(SIZE), SIZE);
	unit_ok(look(object, 0, SIZE), &err);
}
END_TEST

START_TEST(what_will_be_needed_is_fetched)
{
	mfs_object_backing.willneed(object, 0, SIZE);
	for (int i = 0; i < 1000 && mfs_cache_stats(cache).fetched < SIZE; i++)
		usleep(10000);
	ck_assert_uint_eq(mfs_cache_stats(cache).fetched, SIZE);
	unit_ok(look(object, 0, SIZE), &err);
	ck_assert_uint_eq(mfs_cache_stats(cache).misses, 0);
	mfs_object_backing.willneed(object, SIZE, 1);
}
END_TEST

static bool has_threads(void)
{
	bool found;

	pthread_mutex_lock(&cache->lock);
	found = cache->thread_count;
	pthread_mutex_unlock(&cache->lock);
	return found;
}

/* Its threads end, in the middle of what nobody waits for, and begin again. */
START_TEST(threads_end_and_begin_again)
{
	const struct timespec little = {0, 20000000};

	mfs_cache_rest(cache);
	unit_ok(look(object, 0, 10), &err);
	ck_assert(has_threads());
	mfs_object_backing.willneed(object, 0, SIZE);
	if (_i)
		nanosleep(&little, NULL);
	mfs_cache_rest(cache);
	ck_assert(!has_threads());
	ck_assert_uint_eq(mfs_cache_stats(cache).failed, 0);
	unit_ok(look(object, 0, SIZE), &err);
}
END_TEST

/* ---- failures ---- */

/* What passes: the right bytes come all the same. */
static const enum fault passing[] = {FAULT_503,	  FAULT_TRUNCATED, FAULT_RESET,
				     FAULT_STALL, FAULT_SILENT,	   FAULT_REDIRECT};

START_TEST(faults_that_pass_are_tried_again)
{
	server.fault = passing[_i];
	server.faults = passing[_i] == FAULT_STALL || passing[_i] == FAULT_SILENT ? 1 : 2;
	unit_ok(look(object, 0, SIZE), &err);
	ck_assert_uint_eq(atomic_load(&server.faults), 0);
}
END_TEST

/* Answers that end early, again and again: what has come is not asked for again, not even in the
 * middle of a block. */
START_TEST(gets_further)
{
	server.fault = FAULT_TRUNCATED;
	server.faults = 5; /* 1 MiB, halved each time */
	unit_ok(look(object, 0, MIB), &err);
	ck_assert_uint_eq(atomic_load(&server.faults), 0);
	ck_assert_uint_eq(sent(MIB), MIB);
}
END_TEST

/* What does not pass: an error in bounded time, with a sentence. */
static const struct lasting {
	enum fault fault;
	int rc;
	const char *says;
} lasting[] = {
	{FAULT_503, -EIO, "the server answers 503"},
	{FAULT_404, -ESTALE, "deleted from the server"},
	{FAULT_RESET, -EIO, "127.0.0.1"},
	{FAULT_STALL, -ETIMEDOUT, "has sent nothing for 2 s"},
	{FAULT_SILENT, -ETIMEDOUT, "has sent nothing for 2 s"},
	{FAULT_OTHER_RANGE, -EIO, "the server sends others"},
	{FAULT_SHORT_RANGE, -EIO, "too few bytes"},
	{FAULT_NO_RANGES, -EIO, "does not serve ranges"},
	{FAULT_ENCODED, -EIO, "encoded"},
	{FAULT_OTHER_VERSION, -ESTALE, "changed on the server"},
	{FAULT_INWARDS, -EPERM, "a redirect leads to 127.0.0.2, which is this machine"},
	{FAULT_LONG_HEADER, -EIO, "the answer has a header that is too long"},
};

START_TEST(faults_that_last_are_told)
{
	const struct lasting *l = &lasting[_i];
	const int64_t began = mfs_now_ns();

	server.fault = l->fault;
	server.faults = 1000000;
	unit_fails(look(object, 5 * MIB, MIB), &err, l->rc, l->says);
	/* Four times the limit of two seconds, and something for a busy machine. Where half of what
	 * is missing comes each time, once more for each of four halves. */
	ck_assert_int_lt(mfs_now_ns() - began, (l->fault == FAULT_STALL ? 20 : 12) * 1000000000ll);
	/* Nothing wrong was kept, and it is asked for again. */
	server.faults = 0;
	if (l->rc != -ESTALE)
		unit_ok(look(object, 0, SIZE), &err);
	else
		unit_fails(look(object, 0, SIZE), &err, -ESTALE, "the server");
}
END_TEST

START_TEST(an_object_that_changed_is_stale)
{
	unit_ok(look(object, 0, MIB), &err);
	server.version = 1;
	unit_fails(look(object, 5 * MIB, 1), &err, -ESTALE, "changed on the server");
	/* What is here is of the version that was listed. */
	unit_ok(look(object, 0, MIB), &err);
	ck_assert_uint_eq(mfs_cache_stats(cache).stale, 1);
}
END_TEST

/* Without an ETag that can be compared, every answer is looked at. */
START_TEST(changes_without_etag)
{
	server.weak = _i == 0;
	server.no_etag = _i == 1;
	object = open_object(cache);
	unit_ok(look(object, 0, MIB), &err);
	server.version = 1;
	unit_fails(look(object, 5 * MIB, 1), &err, -ESTALE, "changed on the server");
}
END_TEST

/* As Apache's does, a second after the file was written. */
START_TEST(an_etag_that_becomes_strong_is_the_same)
{
	const uint64_t strong = mfs_object_as_backing(object).version;

	server.weak = true;
	object = open_object(cache);
	unit_ok(look(object, 0, MIB), &err);
	server.weak = false;
	unit_ok(look(object, 5 * MIB, 1), &err);
	ck_assert_uint_eq(mfs_object_as_backing(object).version, strong);
}
END_TEST

START_TEST(no_version)
{
	const struct mfs_object_id id = {.url = url, .size = SIZE};
	struct mfs_object *o;

	unit_fails(mfs_cache_object(cache, &id, &o, &err), &err, -EINVAL, "neither an ETag");
}
END_TEST

START_TEST(nobody_there)
{
	const int64_t began = mfs_now_ns();

	range_stop(&server);
	unit_fails(look(object, 0, 1), &err, -EIO, "127.0.0.1");
	ck_assert_int_lt(mfs_now_ns() - began, 16000000000ll);
	range_start(&server, SIZE);
}
END_TEST

/* ---- what stays ---- */

START_TEST(what_was_fetched_stays)
{
	unit_ok(look(object, 0, SIZE), &err);
	mfs_cache_free(cache);
	cache = open_cache();
	object = open_object(cache);
	server.requests = 0;
	unit_ok(look(object, 0, SIZE), &err);
	ck_assert_uint_eq(atomic_load(&server.requests), 0);
}
END_TEST

static int open_named(const char *end)
{
	char name[MFS_KEY + 8], path[500];
	int fd;

	mfs_object_name(key, end, name);
	snprintf(path, sizeof(path), "%s/objects/%s", dir, name);
	fd = open(path, O_RDWR);
	ck_assert_int_ge(fd, 0);
	return fd;
}

static void damage(const char *end, off_t at)
{
	uint8_t byte;
	int fd = open_named(end);

	ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
	byte ^= 1;
	ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

START_TEST(damaged_bytes)
{
	unit_ok(look(object, 0, SIZE), &err);
	mfs_cache_free(cache);
	damage("data", 4 * MIB + 77);
	cache = open_cache();
	object = open_object(cache);
	unit_ok(look(object, 0, SIZE), &err);
	ck_assert_uint_eq(mfs_cache_stats(cache).damaged, 1);
	ck_assert_uint_eq(mfs_cache_stats(cache).fetched, MIB);
}
END_TEST

START_TEST(damaged_map)
{
	unit_ok(look(object, 0, SIZE), &err);
	mfs_cache_free(cache);
	damage("map", _i ? 24 : 0); /* the number of blocks, the magic */
	cache = open_cache();
	object = open_object(cache);
	unit_ok(look(object, 0, SIZE), &err);
	ck_assert_uint_eq(mfs_cache_stats(cache).fetched, SIZE);
}
END_TEST

static unsigned count(const char *name)
{
	char path[400];
	struct dirent *d;
	unsigned n = 0;
	DIR *list;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	list = opendir(path);
	while ((d = readdir(list)))
		n += *d->d_name != '.';
	closedir(list);
	return n;
}

/* A process is killed while it fetches: what it has left is right, and its place goes. */
START_TEST(a_process_that_was_killed_leaves_right_bytes)
{
	pid_t child;
	int status, go[2];

	/* Before there are threads, as ThreadSanitizer wants it. */
	ck_assert_int_eq(pipe(go), 0);
	child = fork();
	if (!child) {
		struct mfs_cache *c;

		ck_assert_int_eq(read(go[0], &server.port, sizeof(server.port)),
				 sizeof(server.port));
		server.size = SIZE;
		say_places();
		c = open_cache();
		mfs_object_backing.willneed(open_object(c), 0, SIZE);
		for (;;)
			pause();
	}
	begin(SIZE);
	mfs_cache_free(cache);
	ck_assert_int_eq(write(go[1], &server.port, sizeof(server.port)), sizeof(server.port));
	usleep(30000 + 10000 * _i);
	kill(child, SIGKILL);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFSIGNALED(status));
	cache = open_cache();
	ck_assert_uint_eq(count("mounts"), 1);
	object = open_object(cache);
	unit_ok(look(object, 0, SIZE), &err);
}
END_TEST

START_TEST(two_caches_share_what_was_fetched)
{
	struct mfs_cache *other = open_cache();
	struct mfs_object *same = open_object(other);

	ck_assert_uint_eq(count("mounts"), 2);
	unit_ok(look(object, 0, SIZE), &err);
	unit_ok(look(same, 0, SIZE), &err);
	ck_assert_uint_eq(count("objects"), 2);
	ck_assert_uint_eq(mfs_cache_stats(other).fetched, 0);
	ck_assert_uint_eq(sent(SIZE), SIZE);
	mfs_cache_free(other);
	ck_assert_uint_eq(count("mounts"), 1);
	unit_ok(look(object, 0, SIZE), &err);
}
END_TEST

/* A directory of a server may have more objects than a process may have mappings. */
START_TEST(files_at_the_first_use)
{
	char name[120];

	for (int i = 0; i < 1000; i++) {
		const struct mfs_object_id id = {.url = name, .etag = "\"v0\"", .size = SIZE};
		struct mfs_object *o;

		snprintf(name, sizeof(name), "%s/%d", url, i);
		unit_ok(mfs_cache_object(cache, &id, &o, &err), &err);
	}
	ck_assert_uint_eq(count("objects"), 0);
	unit_ok(look(object, 0, 1), &err);
	ck_assert_uint_eq(count("objects"), 2);
}
END_TEST

/* As a file system that compresses keeps it, and as cp --sparse copies it. */
START_TEST(map_with_holes)
{
	struct stat st;
	int fd;

	unit_ok(look(object, 0, MIB), &err);
	mfs_cache_free(cache);
	fd = open_named("map");
	ck_assert_int_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 8192, 16384), 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_int_lt(512 * st.st_blocks, st.st_size);
	cache = open_cache();
	object = open_object(cache);
	server.requests = 0;
	unit_ok(look(object, 0, MIB), &err);
	ck_assert_uint_eq(atomic_load(&server.requests), 0);
	/* There is room for all that will be written. */
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_int_ge(512 * st.st_blocks, st.st_size);
	close(fd);
}
END_TEST

/* What one process reads is not made anew by another. */
START_TEST(damaged_while_in_use)
{
	struct mfs_cache *other;

	unit_ok(look(object, 0, SIZE), &err);
	damage("map", 0);
	other = open_cache();
	unit_fails(look(open_object(other), 0, SIZE), &err, -EIO, "another mount uses them");
	unit_ok(look(object, 0, SIZE), &err);
	mfs_cache_free(cache);
	cache = other;
	unit_ok(look(open_object(cache), 0, SIZE), &err);
}
END_TEST

/* Another process holds the directory's lock for ever. */
START_TEST(frozen_process)
{
	char path[400];
	int fd;

	unit_ok(look(object, 0, MIB), &err);
	snprintf(path, sizeof(path), "%s/lock", dir);
	fd = open(path, O_RDWR);
	ck_assert_int_eq(flock(fd, LOCK_EX), 0);
	atomic_store(&object->blocks.states[5], MFS_BLOCK_LEAVING);
	unit_fails(look(object, 5 * MIB, 1), &err, -EIO, "takes a block out");
	unit_ok(look(object, 6 * MIB, 1), &err);
	close(fd);
	unit_ok(look(object, 0, SIZE), &err);
}
END_TEST

START_TEST(refuses_others)
{
	const struct mfs_cache_options opt = {.dir = dir};
	struct mfs_cache *c;

	ck_assert_int_eq(chmod(dir, 0770), 0);
	unit_fails(mfs_cache_open(&opt, &c, &err), &err, -EACCES, "mode 770");
	ck_assert_int_eq(chmod(dir, 0700), 0);
}
END_TEST

/* In the place of a name of the cache somebody has put a link to a directory that has the same
 * names in it, or another file stands there. */
START_TEST(links_in_the_cache_are_not_followed)
{
	static const char *const names[] = {"mounts", "objects"};
	const struct mfs_cache_options opt = {.dir = dir};
	char victim[320], path[700], away[700];
	struct mfs_cache *c;

	snprintf(victim, sizeof(victim), "%s/victim", unit_tmpdir());
	ck_assert_int_eq(mkdir(victim, 0700), 0);
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%s", victim, names[i]);
		ck_assert_int_eq(mkdir(path, 0700), 0);
		unit_write(path, "mine", "mine", 4);
	}
	mfs_cache_free(cache);
	cache = NULL;
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		snprintf(away, sizeof(away), "%s.away", path);
		ck_assert_int_eq(rename(path, away), 0);
		ck_assert_int_eq(symlink(victim, path), 0);
		unit_fails(mfs_cache_open(&opt, &c, &err), &err, -ENOTDIR, "cannot open the cache");
		ck_assert_int_eq(unlink(path), 0);
		ck_assert_int_eq(rename(away, path), 0);
	}
	/* A place of a process that is none, and what a person keeps there. */
	snprintf(path, sizeof(path), "%s/mounts/4711-65f0c0de", dir);
	ck_assert_int_eq(symlink(victim, path), 0);
	snprintf(away, sizeof(away), "%s/mounts/notes", dir);
	ck_assert_int_eq(mkdir(away, 0700), 0);
	unit_write(away, "mine", "mine", 4);
	cache = open_cache();
	object = open_object(cache);
	unit_ok(look(object, 0, 10), &err);
	ck_assert_int_ne(faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW), 0);
	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/%s/mine", i < 2 ? victim : away,
			 i < 2 ? names[i] : ".");
		ck_assert_msg(!access(path, F_OK), "%s is gone", path);
	}
}
END_TEST

/* The default name in /tmp may be taken by somebody else, who lets it lead into the user's own
 * files. Only root can try it here. */
START_TEST(link_of_another)
{
	const struct mfs_cache_options opt = {.dir = dir};
	char real[310];
	struct mfs_cache *c;

	if (geteuid())
		return;
	snprintf(real, sizeof(real), "%s.real", dir);
	mfs_cache_free(cache);
	cache = NULL;
	ck_assert_int_eq(rename(dir, real), 0);
	ck_assert_int_eq(symlink(real, dir), 0);
	ck_assert_int_eq(fchownat(AT_FDCWD, dir, 65534, 65534, AT_SYMLINK_NOFOLLOW), 0);
	unit_fails(mfs_cache_open(&opt, &c, &err), &err, -EACCES, "link of user 65534");
	/* One of one's own is fine. */
	ck_assert_int_eq(fchownat(AT_FDCWD, dir, 0, 0, AT_SYMLINK_NOFOLLOW), 0);
	cache = open_cache();
}
END_TEST

/* ---- its size ---- */

static uint64_t on_disk(void)
{
	char path[400], file[700];
	uint64_t bytes = 0;
	struct dirent *d;
	struct stat st;
	DIR *list;

	snprintf(path, sizeof(path), "%s/objects", dir);
	list = opendir(path);
	while ((d = readdir(list))) {
		snprintf(file, sizeof(file), "%s/%s", path, d->d_name);
		if (!stat(file, &st) && S_ISREG(st.st_mode))
			bytes += 512 * (uint64_t)st.st_blocks;
	}
	closedir(list);
	return bytes;
}

/* Every byte of a range that is pinned in other. */
static void compare(struct mfs_object *o, uint64_t off, uint64_t len)
{
	uint8_t *bytes = malloc(len);
	int fd;

	unit_ok(mfs_object_backing.open(o, &fd, &err), &err);
	ck_assert_int_eq(mfs_pread_whole(fd, off, bytes, len), 0);
	for (uint64_t i = 0; i < len; i += MIB)
		for (uint64_t k = 0; k < MIB; k++)
			if (bytes[i + k] != range_byte(off + i + k))
				ck_abort_msg("byte %llu is wrong",
					     (unsigned long long)(off + i + k));
	close(fd);
	free(bytes);
}

static void setup_large(void)
{
	begin(40 * MIB);
}

START_TEST(the_cache_stays_within_its_size)
{
	uint32_t pin;

	unit_ok(mfs_object_backing.acquire(object, 5 * MIB, 2 * MIB, &pin, &err), &err);
	for (int turn = 0; turn < 2; turn++)
		for (uint64_t at = 0; at < 40 * MIB; at += MIB) {
			unit_ok(look(object, at, MIB), &err);
			ck_assert_uint_le(on_disk(), 17 * MIB);
		}
	ck_assert_uint_gt(mfs_cache_stats(cache).evicted, 30);
	/* What is in use was not taken out. */
	ck_assert(mfs_block_is_there(object, 5) && mfs_block_is_there(object, 6));
	server.requests = 0;
	unit_ok(look(object, 5 * MIB, 2 * MIB), &err);
	ck_assert_uint_eq(atomic_load(&server.requests), 0);
	mfs_object_backing.release(object, pin);
}
END_TEST

/* What another mount reads stays, while this one writes more than the cache may have. _i: its pins
 * cannot be read for a time, so nothing may be taken out. */
START_TEST(pins_of_others)
{
	struct mfs_cache *other = open_cache();
	struct mfs_object *same = open_object(other);
	char pins[500], away[500];
	uint32_t pin;

	unit_ok(mfs_object_backing.acquire(same, 4 * MIB, 4 * MIB, &pin, &err), &err);
	snprintf(pins, sizeof(pins), "%s/pins", mfs_cache_place(other));
	snprintf(away, sizeof(away), "%s/away", mfs_cache_place(other));
	if (_i) {
		ck_assert_int_eq(rename(pins, away), 0);
		ck_assert_int_eq(mkdir(pins, 0700), 0);
		for (uint64_t at = 10 * MIB; at < 40 * MIB; at += MIB)
			unit_ok(look(object, at, MIB), &err);
		ck_assert_uint_eq(mfs_cache_stats(cache).evicted, 0);
		compare(same, 4 * MIB, 4 * MIB);
		ck_assert_int_eq(rmdir(pins), 0);
		ck_assert_int_eq(rename(away, pins), 0);
	}
	for (int turn = 0; turn < 2; turn++)
		for (uint64_t at = 8 * MIB; at < 40 * MIB; at += MIB)
			unit_ok(look(object, at, MIB), &err);
	ck_assert_uint_gt(mfs_cache_stats(cache).evicted, 20);
	compare(same, 4 * MIB, 4 * MIB);
	mfs_object_backing.release(same, pin);
	mfs_cache_free(other);
}
END_TEST

/* ---- large objects ---- */

static void setup_huge(void)
{
	begin(40ull << 30);
}

static void *acquire_all(void *arg)
{
	struct mfs_error why;
	uint32_t pin;

	(void)arg;
	mfs_object_backing.acquire(object, 0, server.size, &pin, &why);
	return NULL;
}

/* Who wants all of it does not fill the queue before the others. */
START_TEST(a_large_wish_does_not_fill_the_queue)
{
	unsigned queued = 0;
	pthread_t thread;

	server.fault = FAULT_SILENT;
	server.faults = 1000000;
	ck_assert_int_eq(pthread_create(&thread, NULL, acquire_all, NULL), 0);
	for (int i = 0; i < 200 && !queued; i++) {
		usleep(5000);
		pthread_mutex_lock(&cache->lock);
		queued = cache->queued;
		pthread_mutex_unlock(&cache->lock);
	}
	ck_assert_uint_gt(queued, 0);
	ck_assert_uint_le(queued, 2 * cache->connections);
	pthread_join(thread, NULL);
}
END_TEST

/* What no mount uses goes first, whole. */
START_TEST(size_of_others)
{
	struct mfs_object_id id = {.url = url, .etag = "\"v0\"", .size = server.size};
	struct mfs_object *o;
	char old[400];

	unit_ok(look(object, 0, 10 * MIB), &err);
	snprintf(old, sizeof(old), "%s/objects/%s.data", dir, object->key);
	mfs_cache_free(cache);
	cache = open_cache();
	strcat(url, "/other");
	id.url = url;
	unit_ok(mfs_cache_object(cache, &id, &o, &err), &err);
	unit_ok(look(o, 0, 9 * MIB), &err);
	ck_assert_int_eq(access(old, F_OK), -1);
	ck_assert_uint_eq(count("objects"), 2);
	ck_assert(mfs_block_is_there(o, 0));
}
END_TEST

/* ---- many readers ---- */

static atomic_uint failures;

static void *read_at_random(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;
	struct mfs_cache *c = seed & 1 ? cache : open_cache();
	struct mfs_object *o = seed & 1 ? object : open_object(c);
	const struct mfs_backing_ops *ops = &mfs_object_backing;
	uint8_t *bytes = malloc(2 * MIB);

	for (int i = 0; i < 8; i++) {
		const uint64_t at = (uint64_t)rand_r(&seed) * 4096 % (38 * MIB);
		struct mfs_error why;
		uint32_t pin;
		int fd;

		if (i % 4 == 0)
			ops->willneed(o, at, 2 * MIB);
		if (ops->acquire(o, at, 2 * MIB, &pin, &why) || ops->open(o, &fd, &why)) {
			atomic_fetch_add(&failures, 1);
			continue;
		}
		if (mfs_pread_whole(fd, at, bytes, 2 * MIB))
			atomic_fetch_add(&failures, 1);
		for (uint64_t k = 0; k < 2 * MIB; k++)
			if (bytes[k] != range_byte(at + k)) {
				atomic_fetch_add(&failures, 1);
				break;
			}
		close(fd);
		ops->release(o, pin);
	}
	if (c != cache)
		mfs_cache_free(c);
	free(bytes);
	return NULL;
}

START_TEST(threads_read_the_same_bytes)
{
	pthread_t threads[4];

	failures = 0;
	for (uintptr_t i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, read_at_random, (void *)(i + 1)),
				 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(atomic_load(&failures), 0);
	ck_assert_uint_le(on_disk(), 28 * MIB);
}
END_TEST

static TCase *case_of(Suite *s, const char *name, void (*before)(void))
{
	TCase *c = tcase_create(name);

	tcase_add_checked_fixture(c, before, teardown);
	suite_add_tcase(s, c);
	return c;
}

/* What servers answer and what files hold is of no thread. */
#ifdef __SANITIZE_THREAD__
#define THREADS_ALONE true
#else
#define THREADS_ALONE false
#endif

Suite *mfs_suite(void)
{
	Suite *s = suite_create("remote_cache");
	TCase *c = case_of(s, "reads", setup);

	tcase_add_test(c, each_byte_comes_once);
	tcase_add_test(c, opened_for_ever);
	tcase_add_test(c, what_will_be_needed_is_fetched);
	tcase_add_loop_test(c, threads_end_and_begin_again, 0, 2);
	c = case_of(s, "stays", setup);
	tcase_add_test(c, two_caches_share_what_was_fetched);
	c = case_of(s, "size", setup_large);
	tcase_add_test(c, size_of_others);
	tcase_add_loop_test(c, pins_of_others, 0, 2);
	c = case_of(s, "threads", setup_large);
	tcase_add_test(c, threads_read_the_same_bytes);
	if (THREADS_ALONE)
		return s;
	c = case_of(s, "nothing", setup_whole_blocks);
	tcase_add_test(c, nothing_to_read);
	c = case_of(s, "failures", setup);
	tcase_add_loop_test(c, faults_that_pass_are_tried_again, 0, MFS_ARRAY_SIZE(passing));
	tcase_add_test(c, gets_further);
	tcase_add_loop_test(c, faults_that_last_are_told, 0, MFS_ARRAY_SIZE(lasting));
	tcase_add_test(c, an_object_that_changed_is_stale);
	tcase_add_loop_test(c, changes_without_etag, 0, 2);
	tcase_add_test(c, an_etag_that_becomes_strong_is_the_same);
	tcase_add_test(c, no_version);
	tcase_add_test(c, nobody_there);
	c = case_of(s, "damage", setup);
	tcase_add_test(c, what_was_fetched_stays);
	tcase_add_test(c, damaged_bytes);
	tcase_add_loop_test(c, damaged_map, 0, 2);
	tcase_add_test(c, refuses_others);
	tcase_add_test(c, links_in_the_cache_are_not_followed);
	tcase_add_test(c, link_of_another);
	tcase_add_test(c, files_at_the_first_use);
	tcase_add_test(c, damaged_while_in_use);
	tcase_add_test(c, frozen_process);
	c = case_of(s, "huge", setup_huge);
	tcase_add_test(c, a_large_wish_does_not_fill_the_queue);
	tcase_add_test(c, map_with_holes);
	c = case_of(s, "killed", NULL);
	tcase_add_loop_test(c, a_process_that_was_killed_leaves_right_bytes, 0, 3);
	c = case_of(s, "room", setup_large);
	tcase_add_test(c, the_cache_stays_within_its_size);
	return s;
}
