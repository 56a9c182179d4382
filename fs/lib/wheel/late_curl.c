/*
 * For the library in the Python package, which has nothing installed with it: libcurl, opened when
 * a URL is first read. The machine's own libcurl knows where its certificates are; without one all
 * but URLs works.
 */
#include <curl/curl.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>

#include "formats/base/array.h"

/* They are variadic, or macros that check types. */
#undef curl_easy_getinfo
#undef curl_easy_setopt

static struct {
	CURLcode (*global_init)(long flags);
	CURL *(*easy_init)(void);
	CURLcode (*easy_setopt)(CURL *curl, CURLoption option, ...);
	CURLcode (*easy_getinfo)(CURL *curl, CURLINFO info, ...);
	CURLcode (*easy_perform)(CURL *curl);
	void (*easy_reset)(CURL *curl);
	void (*easy_cleanup)(CURL *curl);
	const char *(*easy_strerror)(CURLcode code);
	struct curl_slist *(*slist_append)(struct curl_slist *list, const char *line);
	void (*slist_free_all)(struct curl_slist *list);
} lib;

static const struct {
	const char *name;
	size_t member; /* of lib, in bytes */
} functions[] = {
	{"curl_global_init", offsetof(__typeof__(lib), global_init)},
	{"curl_easy_init", offsetof(__typeof__(lib), easy_init)},
	{"curl_easy_setopt", offsetof(__typeof__(lib), easy_setopt)},
	{"curl_easy_getinfo", offsetof(__typeof__(lib), easy_getinfo)},
	{"curl_easy_perform", offsetof(__typeof__(lib), easy_perform)},
	{"curl_easy_reset", offsetof(__typeof__(lib), easy_reset)},
	{"curl_easy_cleanup", offsetof(__typeof__(lib), easy_cleanup)},
	{"curl_easy_strerror", offsetof(__typeof__(lib), easy_strerror)},
	{"curl_slist_append", offsetof(__typeof__(lib), slist_append)},
	{"curl_slist_free_all", offsetof(__typeof__(lib), slist_free_all)},
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int failed;

/* Debian has a libcurl with GnuTLS, too, and some machines that one alone. */
static void *open_library(void)
{
	void *curl = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);

	return curl ? curl : dlopen("libcurl-gnutls.so.4", RTLD_NOW | RTLD_LOCAL);
}

static void load(void)
{
	void *curl = open_library();

	for (size_t i = 0; curl && i < MFS_ARRAY_SIZE(functions); i++) {
		void *function = dlsym(curl, functions[i].name);

		*(void **)((char *)&lib + functions[i].member) = function;
		if (!function)
			curl = NULL;
	}
	failed = !curl;
}

/* Nothing else is called where this has failed. */
CURLcode curl_global_init(long flags)
{
	pthread_once(&once, load);
	return failed ? CURLE_FAILED_INIT : lib.global_init(flags);
}

CURL *curl_easy_init(void)
{
	return lib.easy_init();
}

/* A long, a pointer or a curl_off_t, which are passed alike where all of them have 64 bits. */
_Static_assert(sizeof(long) == sizeof(curl_off_t) && sizeof(long) == sizeof(void *), "LP64");

CURLcode curl_easy_setopt(CURL *curl, CURLoption option, ...)
{
	va_list rest;
	void *value;

	va_start(rest, option);
	value = va_arg(rest, void *);
	va_end(rest);
	return lib.easy_setopt(curl, option, value);
}

CURLcode curl_easy_getinfo(CURL *curl, CURLINFO info, ...)
{
	va_list rest;
	void *ret;

	va_start(rest, info);
	ret = va_arg(rest, void *);
	va_end(rest);
	return lib.easy_getinfo(curl, info, ret);
}

CURLcode curl_easy_perform(CURL *curl)
{
	return lib.easy_perform(curl);
}

void curl_easy_reset(CURL *curl)
{
	lib.easy_reset(curl);
}

void curl_easy_cleanup(CURL *curl)
{
	lib.easy_cleanup(curl);
}

const char *curl_easy_strerror(CURLcode code)
{
	return lib.easy_strerror(code);
}

struct curl_slist *curl_slist_append(struct curl_slist *list, const char *line)
{
	return lib.slist_append(list, line);
}

void curl_slist_free_all(struct curl_slist *list)
{
	lib.slist_free_all(list);
}
