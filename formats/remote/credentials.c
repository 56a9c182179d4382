#define _GNU_SOURCE
#include "formats/remote/credentials.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <jansson.h>

#include "formats/base/buf.h"
#include "formats/io/regular.h"
#include "formats/io/whole.h"
#include "formats/net/sigv4.h"
#include "formats/remote/curl.h"
#include "formats/remote/ini.h"

#define FILE_MAX   (1u << 20)
#define ANSWER_MAX 65536
#define EARLY	   300 /* seconds before its end in which a role's key is asked for again */
#define AGAIN	   30  /* seconds between two attempts */
/* The service is on the machine itself: who is not there does not answer, and is not waited for. */
#define METADATA_TIMEOUT 1
#define METADATA	 "http://169.254.169.254"

/* Of one answer or one file, always replaced together. */
struct keys {
	char access[256], secret[256], token[16384]; /* "": none */
	time_t expires;				     /* 0: never */
};

struct mfs_credentials {
	bool of_role;
	pthread_mutex_t asking; /* held by who asks for other keys */
	pthread_mutex_t lock;	/* what follows; nobody waits for a server under it */
	struct keys keys;
	time_t next; /* when the service may be asked again */
};

/* ---- files ---- */

static char *read_file(const char *path, size_t *ret_len)
{
	struct stat st;
	char *text = NULL;
	int fd;

	if (mfs_open_regular(AT_FDCWD, path, 0, &fd, &st))
		return NULL;
	if (st.st_size > 0 && st.st_size <= FILE_MAX)
		text = malloc((size_t)st.st_size);
	*ret_len = (size_t)st.st_size;
	if (text && mfs_pread_whole(fd, 0, text, *ret_len)) {
		free(text);
		text = NULL;
	}
	close(fd);
	return text;
}

static bool find_file(const char *variable, const char *name, char ret[PATH_MAX])
{
	const char *given = getenv(variable), *home = getenv("HOME");

	if (given && *given)
		return snprintf(ret, PATH_MAX, "%s", given) < PATH_MAX;
	return home && snprintf(ret, PATH_MAX, "%s/.aws/%s", home, name) < PATH_MAX;
}

bool mfs_credentials_path(char ret[PATH_MAX])
{
	return find_file("AWS_SHARED_CREDENTIALS_FILE", "credentials", ret);
}

bool mfs_credentials_config_path(char ret[PATH_MAX])
{
	return find_file("AWS_CONFIG_FILE", "config", ret);
}

static const char *profile(void)
{
	const char *name = getenv("AWS_PROFILE");

	return name && *name ? name : "default";
}

void mfs_credentials_region(char *ret, size_t size)
{
	const char *given = getenv("AWS_REGION");
	char section[256], path[PATH_MAX], *text;
	bool found = false;
	size_t len;

	if (!given || !*given)
		given = getenv("AWS_DEFAULT_REGION");
	if (given && *given) {
		snprintf(ret, size, "%s", given);
		return;
	}
	text = mfs_credentials_config_path(path) ? read_file(path, &len) : NULL;
	snprintf(section, sizeof(section), "%s%s", strcmp(profile(), "default") ? "profile " : "",
		 profile());
	if (text)
		found = mfs_ini_find(text, len, section, "region", ret, size);
	free(text);
	if (!found)
		snprintf(ret, size, "us-east-1");
}

/* ---- where keys come from ---- */

static bool copy(char *to, size_t size, const char *text)
{
	return text && *text && (size_t)snprintf(to, size, "%s", text) < size;
}

static bool from_environment(struct keys *c)
{
	const char *token = getenv("AWS_SESSION_TOKEN");

	return copy(c->access, sizeof(c->access), getenv("AWS_ACCESS_KEY_ID")) &&
	       copy(c->secret, sizeof(c->secret), getenv("AWS_SECRET_ACCESS_KEY")) &&
	       (!token || !*token || copy(c->token, sizeof(c->token), token));
}

static bool from_file(struct keys *c)
{
	size_t len;
	char path[PATH_MAX], *text = mfs_credentials_path(path) ? read_file(path, &len) : NULL;
	bool found;

	c->token[0] = '\0';
	if (!text)
		return false;
	found = mfs_ini_find(text, len, profile(), "aws_access_key_id", c->access,
			     sizeof(c->access)) &&
		mfs_ini_find(text, len, profile(), "aws_secret_access_key", c->secret,
			     sizeof(c->secret));
	mfs_ini_find(text, len, profile(), "aws_session_token", c->token, sizeof(c->token));
	explicit_bzero(text, len);
	free(text);
	return found;
}

static int take_role(struct keys *c, const char *text, size_t len, struct mfs_error *err)
{
	json_t *root = json_loadb(text, len, 0, NULL);
	const char *until = json_string_value(json_object_get(root, "Expiration"));
	struct tm tm = {0};
	bool ok;

	ok = copy(c->access, sizeof(c->access),
		  json_string_value(json_object_get(root, "AccessKeyId"))) &&
	     copy(c->secret, sizeof(c->secret),
		  json_string_value(json_object_get(root, "SecretAccessKey"))) &&
	     copy(c->token, sizeof(c->token), json_string_value(json_object_get(root, "Token"))) &&
	     until && strptime(until, "%Y-%m-%dT%H:%M:%SZ", &tm);
	if (ok)
		c->expires = timegm(&tm);
	json_decref(root);
	return ok ? 0
		  : mfs_fail(err, -EINVAL,
			     "the instance metadata service gives no key: expected AccessKeyId, "
			     "SecretAccessKey, Token and Expiration");
}

/* Asks the service for an answer of one line, with a token if there is one yet. */
static int ask(struct mfs_curl *h, const char *method, const char *path, const char *header,
	       struct mfs_buf *ret, struct mfs_error *err)
{
	const char *base = getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT");
	char url[1024];
	struct mfs_curl_request r = {
		.method = method, .url = url, .headers = {header}, .most = ANSWER_MAX};
	int rc;

	base = base && *base ? base : METADATA;
	snprintf(url, sizeof(url), "%.*s/latest/%s",
		 (int)(strlen(base) - (base[strlen(base) - 1] == '/')), base, path);
	rc = mfs_curl_body(h, &r, ret, NULL, err);
	if (!rc && strlen(ret->data) != ret->len)
		rc = mfs_fail(err, -EINVAL, "%s: the answer is not text", url);
	return rc;
}

#define ROLES "meta-data/iam/security-credentials/"

static int ask_role(struct keys *c, struct mfs_curl *h, struct mfs_error *err)
{
	struct mfs_buf b = {0};
	char header[1024], path[512];
	int rc = ask(h, "PUT", "api/token", "X-aws-ec2-metadata-token-ttl-seconds: 21600", &b, err);

	if (!rc) {
		snprintf(header, sizeof(header), "X-aws-ec2-metadata-token: %.*s",
			 (int)strcspn(b.data, "\r\n"), b.data);
		rc = ask(h, NULL, ROLES, header, &b, err);
	}
	if (!rc) {
		snprintf(path, sizeof(path), ROLES "%.*s", (int)strcspn(b.data, "\r\n/?#"), b.data);
		rc = ask(h, NULL, path, header, &b, err);
	}
	if (!rc)
		rc = take_role(c, b.data, b.len, err);
	if (b.data)
		explicit_bzero(b.data, b.len);
	mfs_buf_release(&b);
	return rc;
}

static int from_role(struct keys *c, struct mfs_error *err)
{
	const struct mfs_curl_options opt = {.timeout = METADATA_TIMEOUT};
	const char *off = getenv("AWS_EC2_METADATA_DISABLED");
	struct mfs_curl *h;
	int rc;

	if (off && !strcasecmp(off, "true"))
		return mfs_fail(err, -ENOENT, "AWS_EC2_METADATA_DISABLED is true");
	rc = mfs_curl_new(&opt, &h, err);
	if (rc)
		return rc;
	rc = ask_role(c, h, err);
	mfs_curl_free(h);
	return rc;
}

int mfs_credentials_new(struct mfs_credentials **ret, struct mfs_error *err)
{
	struct mfs_credentials *c = calloc(1, sizeof(*c));
	int rc;

	*ret = NULL;
	if (!c)
		return mfs_fail_nomem(err);
	pthread_mutex_init(&c->lock, NULL);
	pthread_mutex_init(&c->asking, NULL);
	if (!from_environment(&c->keys) && !from_file(&c->keys)) {
		c->of_role = true;
		rc = from_role(&c->keys, err);
		if (rc) {
			mfs_credentials_free(c);
			return rc == -EINVAL || rc == -ENOMEM ? rc : 0;
		}
	}
	*ret = c;
	return 0;
}

void mfs_credentials_free(struct mfs_credentials *c)
{
	if (!c)
		return;
	pthread_mutex_destroy(&c->asking);
	pthread_mutex_destroy(&c->lock);
	explicit_bzero(c, sizeof(*c));
	free(c);
}

/* ---- signing ---- */

/* The role's key nears its end, and this caller is the one who asks for another. */
static bool is_due(struct mfs_credentials *c, time_t now)
{
	bool due;

	pthread_mutex_lock(&c->lock);
	due = now + EARLY >= c->keys.expires && now >= c->next;
	if (due)
		c->next = now + AGAIN;
	pthread_mutex_unlock(&c->lock);
	return due;
}

static int renew(struct mfs_credentials *c, struct mfs_error *err)
{
	struct keys keys = {0};
	int rc = from_role(&keys, err);

	if (!rc) {
		pthread_mutex_lock(&c->lock);
		c->keys = keys;
		pthread_mutex_unlock(&c->lock);
	}
	explicit_bzero(&keys, sizeof(keys));
	return rc;
}

static void copy_keys(struct mfs_credentials *c, struct keys *ret)
{
	pthread_mutex_lock(&c->lock);
	*ret = c->keys;
	pthread_mutex_unlock(&c->lock);
}

/* The keys as they are now. One that cannot be renewed is used to its end. While somebody asks,
 * others go on with the old ones; if these have expired, they wait for him. */
static int current(struct mfs_credentials *c, struct keys *ret, struct mfs_error *err)
{
	const time_t now = time(NULL);
	int rc = 0;

	copy_keys(c, ret);
	if (!c->of_role || now + EARLY < ret->expires)
		return 0;
	if (now < ret->expires && pthread_mutex_trylock(&c->asking))
		return 0;
	if (now >= ret->expires)
		pthread_mutex_lock(&c->asking);
	if (is_due(c, now))
		rc = renew(c, err);
	pthread_mutex_unlock(&c->asking);
	copy_keys(c, ret);
	if (now < ret->expires)
		return 0;
	return rc ? rc
		  : mfs_fail(
			    err, -EACCES,
			    "the key of this machine's role has expired, and the instance metadata "
			    "service gives no other");
}

/* What libcurl sends as Host leaves out an empty port and the one that the scheme implies, and so
 * does what is signed. The port of an IPv6 address follows its bracket. */
static void cut_default_port(const char *url, char *host)
{
	char *bracket = strrchr(host, ']'), *colon = strrchr(bracket ? bracket : host, ':');
	const bool https = !strncasecmp(url, "https://", 8);

	if (!colon || colon[1 + strspn(colon + 1, "0123456789")])
		return;
	if (!colon[1] || strtoul(colon + 1, NULL, 10) == (https ? 443 : 80))
		*colon = '\0';
}

/* Of "http://host:port/path?query": the parts that are signed. */
static int split(const char *url, char *host, size_t size, char **path, const char **query,
		 struct mfs_error *err)
{
	const char *at = strstr(url, "://");
	size_t len;

	at = at ? at + 3 : url;
	len = strcspn(at, "/?");
	if (len >= size)
		return mfs_fail(err, -EINVAL, "%s: the name of the host is too long", url);
	memcpy(host, at, len);
	host[len] = '\0';
	cut_default_port(url, host);
	at += len;
	len = strcspn(at, "?");
	*path = strndup(at, len);
	*query = at[len] ? at + len + 1 : NULL;
	return *path ? 0 : mfs_fail_nomem(err);
}

int mfs_credentials_sign(struct mfs_credentials *c, const char *region,
			 const struct mfs_curl_request *r,
			 bool (*add)(struct curl_slist **list, const char *name, const char *value),
			 struct curl_slist **list, struct mfs_error *err)
{
	struct keys now = {0};
	char date[32], host[300], *path = NULL, *text = NULL;
	const time_t seconds = time(NULL);
	struct mfs_sigv4_header headers[] = {{"host", host},
					     {"x-amz-content-sha256", MFS_SIGV4_EMPTY},
					     {"x-amz-date", date},
					     {"x-amz-security-token", now.token}};
	struct mfs_sigv4_key key = {now.access, now.secret, region, "s3"};
	struct mfs_sigv4_request q = {.method = r->method ? r->method : "GET",
				      .headers = headers,
				      .payload = MFS_SIGV4_EMPTY,
				      .time = date};
	struct tm tm;
	int rc = current(c, &now, err);

	if (!rc)
		rc = split(r->url, host, sizeof(host), &path, &q.query, err);
	if (rc) {
		explicit_bzero(&now, sizeof(now));
		return rc;
	}
	strftime(date, sizeof(date), "%Y%m%dT%H%M%SZ", gmtime_r(&seconds, &tm));
	q.path = path;
	q.header_count = *now.token ? 4 : 3;
	rc = mfs_sigv4_authorization(&key, &q, &text, err);
	if (!rc && (!add(list, "Authorization", text) ||
		    !add(list, "x-amz-content-sha256", MFS_SIGV4_EMPTY) ||
		    !add(list, "x-amz-date", date) ||
		    (*now.token && !add(list, "x-amz-security-token", now.token))))
		rc = mfs_fail_nomem(err);
	free(text);
	free(path);
	explicit_bzero(&now, sizeof(now));
	return rc;
}
