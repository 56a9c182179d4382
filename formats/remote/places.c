#define _GNU_SOURCE
#include "formats/remote/places.h"

#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <curl/curl.h>

#include "formats/base/array.h"
#include "formats/remote/credentials.h"

struct visit {
	int (*each)(void *arg, const char *path, struct mfs_error *err);
	void *arg;
	struct mfs_error *err;
};

/* NULL and "": there is none. */
static int say(const struct visit *v, const char *path)
{
	return path && *path ? v->each(v->arg, path, v->err) : 0;
}

/* More lies there than files of this kind, private keys among it. */
static bool is_wide(const char *dir)
{
	static const char *const wide[] = {"/", "/etc", "/etc/ssl", "/etc/pki", "/etc/pki/tls"};
	const char *home = getenv("HOME");
	size_t len = home ? strlen(home) : 0;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(wide); i++)
		if (!strcmp(dir, wide[i]))
			return true;
	while (len > 1 && home[len - 1] == '/')
		len--;
	return len && !strncmp(dir, home, len) && !dir[len];
}

static int say_replaced(const struct visit *v, const char *path)
{
	char copy[PATH_MAX];
	const char *dir;

	if (!path || strlen(path) >= sizeof(copy))
		return 0;
	strcpy(copy, path);
	dir = dirname(copy);
	return say(v, is_wide(dir) ? path : dir);
}

static int say_all(const struct visit *v, const char *const *paths)
{
	int rc = 0;

	for (; *paths && !rc; paths++)
		rc = say(v, *paths);
	return rc;
}

/* The C library's; resolv.conf may be a link into the directories below /run. */
static int say_names(const struct visit *v)
{
	static const char *const paths[] = {
		"/etc/resolv.conf", "/etc/hosts",	    "/etc/host.conf",  "/etc/nsswitch.conf",
		"/etc/gai.conf",    "/run/systemd/resolve", "/run/resolvconf", NULL,
	};

	return say_all(v, paths);
}

/* Where libcurl was told to look, and where links lead from there. Keys lie in none of these. */
static int say_certificates(const struct visit *v)
{
	static const char *const paths[] = {
		"/etc/ssl/certs",
		"/etc/ssl/openssl.cnf",
		"/usr/share/ca-certificates",
		"/usr/local/share/ca-certificates",
		"/etc/ca-certificates",
		"/etc/pki/ca-trust",
		"/etc/pki/tls/certs",
		"/etc/pki/tls/openssl.cnf",
		"/usr/share/pki",
		"/var/lib/ca-certificates",
		"/etc/crypto-policies",
		NULL,
	};
	const curl_version_info_data *curl = curl_version_info(CURLVERSION_NOW);
	int rc = say_all(v, paths);

	if (!rc && curl->age >= CURLVERSION_SEVENTH) /* those before do not say it */
		rc = say(v, curl->cainfo);
	if (!rc && curl->age >= CURLVERSION_SEVENTH)
		rc = say(v, curl->capath);
	return rc ? rc : say_replaced(v, getenv("CURL_CA_BUNDLE"));
}

static int say_netrc(const struct visit *v)
{
	const char *home = getenv("HOME");
	char path[PATH_MAX];

	if (!home || (size_t)snprintf(path, sizeof(path), "%s/.netrc", home) >= sizeof(path))
		return 0;
	return say(v, path);
}

static int say_aws(const struct visit *v)
{
	char path[PATH_MAX];
	int rc = 0;

	if (mfs_credentials_path(path))
		rc = say_replaced(v, path);
	if (!rc && mfs_credentials_config_path(path))
		rc = say_replaced(v, path);
	return rc;
}

int mfs_remote_places(const char *url,
		      int (*each)(void *arg, const char *path, struct mfs_error *err), void *arg,
		      struct mfs_error *err)
{
	const struct visit v = {each, arg, err};
	int rc = say_names(&v);

	if (!rc)
		rc = say_certificates(&v);
	if (!rc)
		rc = say_netrc(&v);
	if (!rc && !strncmp(url, "s3://", 5))
		rc = say_aws(&v);
	return rc;
}
