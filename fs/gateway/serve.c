/* `mcorefs serve`: in the foreground, until a signal ends it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/base/clock.h"
#include "formats/base/grow.h"
#include "formats/io/fence.h"
#include "formats/io/slurp.h"
#include "formats/remote/mirror.h"
#include "fs/cli/cmdline.h"
#include "fs/cli/commands.h"
#include "fs/cli/log.h"
#include "fs/cli/notify.h"
#include "fs/gateway/command.h"
#include "fs/gateway/access/guesses.h"
#include "fs/gateway/access/sessions.h"
#include "fs/gateway/gateway_config.h"
#include "fs/gateway/gateway.h"
#include "fs/gateway/web/gateway_metrics.h"
#include "fs/gateway/repos/warm.h"
#include "fs/http/http_server.h"
#include "fs/rights/rights.h"
#include "fs/stats/stats.h"

#define GRACE	10 /* seconds that replies have after SIGTERM, unless configured */
#define HUNG	5  /* seconds after these, before threads that hang are given up */
#define PEM_MAX (1u << 20)

enum { URL_WEB = 1, URL_S3 = 2 };

/* What the command line says. It wins over files. */
struct given {
	const char *words[MFS_CMDLINE_ARGUMENTS];
	const char *options;		   /* NULL: none */
	const struct mfs_options *process; /* the same: how the gateway itself runs */
	const char *listen[MFS_LISTENERS], *tokens, *access_log, *certificate, *key;
	const char *data_node, *url_secret, *links;
};

/* A configuration that is in force, or was and has replies under way. Freed with its repositories,
 * which borrow its options. */
struct site {
	struct mfs_serve_config config;
	struct mfs_tokens *tokens;
	struct mfs_secrets *secrets; /* NULL: none */
	/* directories into which links may lead, in addition to sources */
	struct mfs_fence **links;
	uint32_t link_count;
};

/* PEM texts; NULL: no TLS. */
struct pair {
	char *certificate, *key;
};

/* What HTTP passes on with each request of a listener. */
struct door {
	struct mfs_gateway *gateway;
	enum mfs_listener listener;
};

struct serve {
	struct given given;
	struct site *site; /* the gateway's */
	struct mfs_gateway gateway;
	pthread_mutex_t lock; /* the gateway's */
	struct door doors[MFS_LISTENERS];
	struct mfs_http *http[MFS_LISTENERS]; /* NULL: not asked for */
	struct mfs_warmer *warmer;
	struct pair pair;
	unsigned kinds; /* of the URLs among the sources of the start */
};

static int add_word(struct mfs_serve_config *c, const char *word, const char *options,
		    struct mfs_error *err);

/* ---- what is served ---- */

static int read_config(const struct given *given, struct mfs_serve_config *c, struct mfs_error *err)
{
	int rc = 0;

	mfs_serve_config_init(c);
	for (int i = 0; i < MFS_CMDLINE_ARGUMENTS && given->words[i] && !rc; i++)
		rc = add_word(c, given->words[i], given->options, err);
	for (int i = 0; i < MFS_LISTENERS; i++)
		c->listen[i] = given->listen[i] ? given->listen[i] : c->listen[i];
	c->tokens = given->tokens ? given->tokens : c->tokens;
	c->access_log = given->access_log ? given->access_log : c->access_log;
	c->certificate = given->certificate ? given->certificate : c->certificate;
	c->key = given->key ? given->key : c->key;
	c->data_node = given->data_node ? given->data_node : c->data_node;
	c->url_secret = given->url_secret ? given->url_secret : c->url_secret;
	if (!rc && given->links)
		rc = mfs_serve_config_add_links(c, given->links, err);
	return rc ? rc : mfs_serve_config_check(c, err);
}

static void site_free(void *arg)
{
	struct site *s = arg;

	mfs_tokens_free(s->tokens);
	mfs_secrets_free(s->secrets);
	for (uint32_t i = 0; i < s->link_count; i++)
		mfs_fence_remove(s->links[i]);
	free(s->links);
	mfs_serve_config_release(&s->config);
	free(s);
}

static struct mfs_redirects redirects(const struct site *s)
{
	return (struct mfs_redirects){s->config.data_node, s->secrets, s->config.url_seconds};
}

static unsigned kind_of(const char *source)
{
	return !mfs_mirror_is_url(source) ? 0 : !strncmp(source, "s3://", 5) ? URL_S3 : URL_WEB;
}

static unsigned kinds_of(const struct site *s)
{
	unsigned kinds = 0;

	for (struct mfs_serve_source *from = s->config.first; from; from = from->next)
		kinds |= kind_of(from->source);
	return kinds;
}

/* What it takes to read from another machine (certificates, names of hosts, keys) may be opened in
 * a sandbox if it began with such a source. */
static int check_sandbox(const struct serve *s, const struct site *site, struct mfs_error *err)
{
	if (!s->given.process->sandbox)
		return 0;
	for (struct mfs_serve_source *from = site->config.first; from; from = from->next)
		if (kind_of(from->source) & ~s->kinds)
			return mfs_fail(err, -EINVAL,
					"%s: a sandbox that began without %s URL reads from none "
					"later: restart it",
					from->source,
					kind_of(from->source) == URL_S3 ? "an s3" : "a web");
	return 0;
}

/* Reads what the command line and files give; nothing is opened. */
static int read_site(const struct given *given, struct site **ret, struct mfs_error *err)
{
	struct site *site = calloc(1, sizeof(*site));
	int rc = site ? read_config(given, &site->config, err) : mfs_fail_nomem(err);

	if (!rc)
		*ret = site;
	else if (site)
		site_free(site);
	return rc;
}

static int allow_links(struct site *s, struct mfs_error *err)
{
	for (const struct mfs_serve_link *l = s->config.links; l; l = l->next) {
		int rc = mfs_grow(&s->links, s->link_count);

		if (!rc)
			rc = mfs_fence_add(MFS_FENCE_COMMON, l->dir, &s->links[s->link_count]);
		if (rc)
			return mfs_fail(err, rc, "links: '%s': %s", l->dir, strerror(-rc));
		s->link_count++;
	}
	return 0;
}

static int add_sources(struct site *s, struct mfs_repos *repos, struct mfs_error *err)
{
	int rc = allow_links(s, err);

	for (struct mfs_serve_source *from = s->config.first; from && !rc; from = from->next)
		rc = mfs_repos_add(repos, from->name, from->source, &from->options.view, err);
	if (!rc && s->config.url_secret)
		rc = mfs_secrets_open(s->config.url_secret, &s->secrets, err);
	return rc ? rc : mfs_tokens_open(s->config.tokens, &s->tokens, err);
}

/* *ret owns the site, which is freed after a failure. */
static int open_site(struct site *site, struct mfs_repos **ret, struct mfs_error *err)
{
	struct mfs_repos *repos = mfs_repos_new(site->config.open);
	int rc;

	if (!repos) {
		site_free(site);
		return mfs_fail_nomem(err);
	}
	mfs_repos_on_free(repos, site_free, site);
	rc = add_sources(site, repos, err);
	if (rc)
		mfs_repos_free(repos);
	else
		*ret = repos;
	return rc;
}

/* ---- the log ---- */

static int open_access_log(struct serve *s, struct mfs_error *err)
{
	const char *path = s->site->config.access_log;
	int fd;

	if (!path)
		return 0;
	if (!strcmp(path, "-")) {
		s->gateway.access_log = STDOUT_FILENO;
		return 0;
	}
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0640);
	if (fd < 0)
		return mfs_fail_errno(err, "cannot open the access log '%s'", path);
	if (s->gateway.access_log < 0)
		s->gateway.access_log = fd;
	else if (dup3(fd, s->gateway.access_log, O_CLOEXEC) >= 0) /* threads may be writing */
		close(fd);
	return 0;
}

/* ---- running ---- */

static int read_pem(const char *path, char **ret, struct mfs_error *err)
{
	void *text;
	size_t len;
	int rc = mfs_slurp(path, PEM_MAX, &text, &len, err);

	if (!rc)
		*ret = text;
	return rc;
}

static void pair_free(struct pair *p)
{
	free(p->certificate);
	free(p->key);
	*p = (struct pair){0};
}

/* Both texts stay NULL without TLS, and after a failure. */
static int read_pair(const struct mfs_serve_config *c, struct pair *ret, struct mfs_error *err)
{
	int rc;

	*ret = (struct pair){0};
	if (!c->certificate != !c->key)
		return mfs_fail(err, -EINVAL, "TLS needs a certificate and a key");
	if (!c->certificate)
		return 0;
	rc = read_pem(c->certificate, &ret->certificate, err);
	if (!rc)
		rc = read_pem(c->key, &ret->key, err);
	if (rc)
		pair_free(ret);
	return rc;
}

#define DEFAULT(listener, key, address, title) address,
#define TITLE(listener, key, address, title)   title,
static const char *const defaults[MFS_LISTENERS] = {MFS_LISTENER_ROWS(DEFAULT)};
static const char *const titles[MFS_LISTENERS] = {MFS_LISTENER_ROWS(TITLE)};

static void answer(void *arg, const struct mfs_request *q, struct mfs_reply *a)
{
	const struct door *door = arg;

	mfs_gateway_answer(door->gateway, door->listener, q, a);
}

static void done(void *arg, const struct mfs_request *q, const struct mfs_reply *a, uint64_t sent,
		 bool whole)
{
	const struct door *door = arg;

	mfs_gateway_done(door->gateway, q, a, sent, whole);
}

static int listen_on(struct serve *s, enum mfs_listener i, struct mfs_error *err)
{
	const char *given = s->site->config.listen[i];
	const struct mfs_http_config http = {
		.listen = given ? given : defaults[i],
		.limits = s->site->config.limits,
		.certificate = s->pair.certificate,
		.key = s->pair.key,
		.arg = &s->doors[i],
		.answer = answer,
		.done = done,
	};

	s->doors[i] = (struct door){&s->gateway, i};
	return http.listen ? mfs_http_bind(&http, &s->http[i], err) : 0;
}

static int listen_on_all(struct serve *s, struct mfs_error *err)
{
	int rc = read_pair(&s->site->config, &s->pair, err);

	for (int i = 0; i < MFS_LISTENERS && !rc; i++)
		rc = listen_on(s, (enum mfs_listener)i, err);
	s->gateway.http = s->http[MFS_LISTENER_WEB];
	return rc;
}

/* Files that SIGHUP or a change makes it read again: rules, secrets, pairs and configurations. */
static int give_up_rights(struct serve *s, struct mfs_error *err)
{
	const struct mfs_serve_config *c = &s->site->config;
	const char *read_again[MFS_CMDLINE_ARGUMENTS + 5], *logs[2] = {NULL};
	struct mfs_rights_needs needs = {.read_again = read_again, .logs = logs};
	static const struct mfs_options plain;
	struct mfs_rights_served *served;
	size_t n = 0;
	int rc;

	if (!mfs_rights_are_dropped(s->given.process))
		return 0;
	for (int i = 0; i < MFS_CMDLINE_ARGUMENTS && s->given.words[i]; i++)
		if (mfs_serve_config_is(s->given.words[i]))
			read_again[n++] = s->given.words[i];
	if (c->tokens)
		read_again[n++] = c->tokens;
	if (c->url_secret)
		read_again[n++] = c->url_secret;
	if (c->certificate)
		read_again[n++] = c->certificate;
	if (c->key)
		read_again[n++] = c->key;
	read_again[n] = NULL;
	if (c->access_log && strcmp(c->access_log, "-"))
		logs[0] = c->access_log;
	for (struct mfs_serve_source *from = c->first; from; from = from->next)
		needs.served_count++;
	for (const struct mfs_serve_link *l = c->links; l; l = l->next)
		needs.served_count++;
	served = calloc(needs.served_count, sizeof(*served));
	if (!served)
		return mfs_fail_nomem(err);
	n = 0;
	for (struct mfs_serve_source *from = c->first; from; from = from->next)
		served[n++] = (struct mfs_rights_served){&from->options, from->source};
	for (const struct mfs_serve_link *l = c->links; l; l = l->next)
		served[n++] = (struct mfs_rights_served){&plain, l->dir};
	needs.served = served;
	rc = mfs_rights_drop_for(s->given.process, &needs, err);
	free(served);
	return rc;
}

/* Who gives up rights does so before there are threads, which would keep theirs; then everything is
 * opened with those that are left, as it will be again by SIGHUP. */
static int prepare(struct serve *s, struct mfs_error *err)
{
	int rc = read_site(&s->given, &s->site, err);

	if (!rc)
		s->kinds = kinds_of(s->site);
	if (!rc)
		rc = listen_on_all(s, err);
	if (!rc)
		rc = give_up_rights(s, err);
	if (!rc && s->given.process->log)
		rc = mfs_log_open(s->given.process->log, err);
	if (!rc)
		rc = open_access_log(s, err);
	if (rc)
		return rc;
	rc = open_site(s->site, &s->gateway.repos, err);
	if (rc)
		s->site = NULL;
	return rc;
}

static int answer_on_all(struct serve *s, struct mfs_error *err)
{
	int rc;

	s->gateway.stats = mfs_gateway_stats_new();
	if (!s->gateway.stats)
		return mfs_fail_nomem(err);
	s->gateway.tokens = s->site->tokens;
	s->gateway.redirects = redirects(s->site);
	s->gateway.proxies = &s->site->config.proxies;
	s->gateway.lock = &s->lock;
	rc = mfs_sessions_new(&s->gateway.sessions, err);
	if (!rc)
		rc = mfs_guesses_new(&s->gateway.guesses, err);
	if (!rc)
		rc = mfs_warmer_start(&s->warmer, err);
	for (int i = 0; i < MFS_LISTENERS && !rc; i++)
		rc = s->http[i] ? mfs_http_run(s->http[i], err) : 0;
	return rc;
}

static void stop(struct serve *s, unsigned grace)
{
	for (int i = MFS_LISTENERS; i-- > 0;)
		if (s->http[i])
			mfs_http_stop(s->http[i], grace);
}

/* Whether something has changed that holds from the start on. */
static bool needs_restart(const struct mfs_serve_config *a, const struct mfs_serve_config *b)
{
	const struct mfs_http_limits *l = &a->limits, *m = &b->limits;

	for (int i = 0; i < MFS_LISTENERS; i++)
		if (strcmp(a->listen[i] ? a->listen[i] : "", b->listen[i] ? b->listen[i] : ""))
			return true;
	if (!a->certificate != !b->certificate)
		return true;
	return l->connections != m->connections || l->per_address != m->per_address ||
	       l->header_bytes != m->header_bytes;
}

static int set_pair(struct serve *s, const struct pair *pair, struct mfs_error *err)
{
	int rc = 0;

	for (int i = 0; i < MFS_LISTENERS && !rc; i++)
		if (s->http[i])
			rc = mfs_http_set_certificate(s->http[i], pair->certificate, pair->key,
						      err);
	return rc ? mfs_fail_in(err, "%s", s->site->config.certificate) : 0;
}

/* A wrong pair changes nothing, and one that is the same is not looked at. A gateway has TLS from
 * the start on or never. */
static void reread_pair(struct serve *s)
{
	struct mfs_error err;
	struct pair pair;
	int rc;

	if (!s->pair.certificate || !s->site->config.certificate)
		return;
	rc = read_pair(&s->site->config, &pair, &err);
	if (!rc && !strcmp(pair.certificate, s->pair.certificate) &&
	    !strcmp(pair.key, s->pair.key)) {
		pair_free(&pair);
		return;
	}
	if (!rc)
		rc = set_pair(s, &pair, &err);
	if (rc) {
		pair_free(&pair);
		mfs_log(LOG_ERR, "%s; the certificate stays as it was", err.msg);
		return;
	}
	pair_free(&s->pair);
	s->pair = pair;
	mfs_log(LOG_NOTICE, "new connections get the new certificate");
}

/* The answer to SIGHUP. A wrong configuration changes nothing. */
static void reread(struct serve *s)
{
	struct mfs_redirects to;
	struct mfs_repos *repos;
	struct mfs_error err;
	struct site *site;
	int rc = read_site(&s->given, &site, &err);

	if (!rc && (rc = check_sandbox(s, site, &err)))
		site_free(site);
	if (!rc)
		rc = open_site(site, &repos, &err);
	if (rc) {
		mfs_log(LOG_ERR, "%s; what is served stays as it was", err.msg);
	} else {
		if (needs_restart(&s->site->config, &site->config))
			mfs_log(LOG_WARNING, "addresses, TLS, and limits of connections and "
					     "headers have changed: they need a restart");
		for (int i = 0; i < MFS_LISTENERS; i++)
			if (s->http[i])
				mfs_http_set_times(s->http[i], &site->config.limits);
		s->site = site;
		to = redirects(site);
		mfs_gateway_replace(&s->gateway, repos, site->tokens, &to, &site->config.proxies);
		mfs_warmer_give(s->warmer, repos);
		mfs_log(LOG_NOTICE, "the configuration was read again");
	}
	reread_pair(s);
	if (open_access_log(s, &err))
		mfs_log(LOG_ERR, "%s", err.msg);
	if (mfs_log_reopen(&err))
		mfs_log(LOG_ERR, "%s", err.msg);
}

static void print_state(const struct serve *s)
{
	const struct mfs_http_state http = mfs_http_state(s->gateway.http);
	const struct mfs_repos_state repos = mfs_repos_state(s->gateway.repos);
	const struct mfs_gateway_sums sums = mfs_gateway_sums(s->gateway.stats);

	mfs_log(LOG_NOTICE,
		"%u connections, %u requests, %u sources open, %llu bytes sent, replies: %llu 2xx, "
		"%llu 4xx, %llu 5xx, %llu cut",
		http.connections, http.requests, repos.open, (unsigned long long)sums.bytes,
		(unsigned long long)sums.replies[2], (unsigned long long)sums.replies[4],
		(unsigned long long)sums.replies[5], (unsigned long long)sums.cut);
}

/* Signals that are waited for here. Threads inherit that they are blocked. */
static void block_signals(sigset_t *set)
{
	const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};

	sigemptyset(set);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(signals); i++)
		sigaddset(set, signals[i]);
	pthread_sigmask(SIG_BLOCK, set, NULL);
	signal(SIGUSR1, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
}

static void run(struct serve *s, const sigset_t *signals)
{
	int sig;

	for (;;) {
		if (sigwait(signals, &sig))
			continue;
		if (sig == SIGUSR1)
			print_state(s);
		else if (sig != SIGHUP)
			return;
		else
			reread(s);
	}
}

static void release(struct serve *s)
{
	mfs_warmer_end(s->warmer, 1); /* of a start that failed: it has opened nothing */
	if (s->gateway.repos)
		mfs_repos_free(s->gateway.repos); /* and with them the site */
	else if (s->site)
		site_free(s->site);
	mfs_sessions_free(s->gateway.sessions);
	mfs_guesses_free(s->gateway.guesses);
	mfs_stats_free(s->gateway.stats);
	if (s->gateway.access_log > STDERR_FILENO)
		close(s->gateway.access_log);
	pair_free(&s->pair);
	pthread_mutex_destroy(&s->lock);
}

/* To a service manager, if one asked. */
static void tell_ready(const struct serve *s)
{
	char text[256];

	snprintf(text, sizeof(text), "READY=1\nSTATUS=serving on %s",
		 mfs_http_address(s->gateway.http));
	mfs_notify(text);
}

static void end_now(int sig)
{
	(void)sig;
	_exit(MFS_EXIT_FAILED);
}

/* Threads are waited for, and one may hang in a read of a storage for ever: a second signal, or
 * the time, ends them all. */
static void end_in(unsigned seconds, const sigset_t *signals)
{
	const struct sigaction now = {.sa_handler = end_now};

	sigaction(SIGINT, &now, NULL);
	sigaction(SIGTERM, &now, NULL);
	sigaction(SIGALRM, &now, NULL);
	signal(SIGHUP, SIG_IGN);
	signal(SIGUSR1, SIG_IGN);
	pthread_sigmask(SIG_UNBLOCK, signals, NULL);
	alarm(seconds);
}

static int serve(struct serve *s)
{
	struct mfs_error err;
	unsigned grace, open = 0; /* listeners, which are stopped one after the other */
	sigset_t signals;

	block_signals(&signals);
	s->gateway.access_log = -1;
	s->gateway.log_json = s->given.process->log_json;
	s->gateway.began_ns = mfs_now_ns();
	if (prepare(s, &err) || answer_on_all(s, &err)) {
		stop(s, 0);
		return mfs_command_failed("%s", err.msg);
	}
	for (int i = MFS_LISTENERS; i-- > 0;)
		if (s->http[i])
			mfs_log(LOG_NOTICE, "%s on %s", titles[i], mfs_http_address(s->http[i]));
	tell_ready(s);
	mfs_warmer_give(s->warmer, s->gateway.repos);
	run(s, &signals);
	grace = s->site->config.grace_seconds ? s->site->config.grace_seconds : GRACE;
	mfs_notify("STOPPING=1");
	mfs_log(LOG_NOTICE, "ending: replies have %u s", grace);
	for (int i = 0; i < MFS_LISTENERS; i++)
		open += s->http[i] != NULL;
	end_in(open * grace + HUNG, &signals);
	stop(s, grace);
	if (!mfs_warmer_end(s->warmer, 1))
		_exit(MFS_EXIT_OK); /* no client waits for what is still being opened */
	s->warmer = NULL;
	return MFS_EXIT_OK;
}

/* ---- the command line ---- */

/* ORG/NAME=SOURCE, or SOURCE, which may have '=' in it too. The name is made in the arena. */
/* The length of the name in ORG/NAME=SOURCE, or in NAME=SOURCE, which is refused later; 0: there is
 * none. A source may have '=' in its own name. */
static size_t name_length(const char *word)
{
	const char *equals = strchr(word, '='), *slash = strchr(word, '/');
	const char *scheme = strstr(word, "://"); /* of the source, or of a name that is none */

	if (!equals || equals == word || *word == '.' || slash == word ||
	    (scheme && scheme < equals))
		return 0;
	if ((!slash || slash > equals) && !access(word, F_OK))
		return 0;
	return (size_t)(equals - word);
}

/* ORG/NAME:SOURCE, as other programs have it. */
static bool has_colon(const char *word)
{
	const char *colon = strchr(word, ':');

	return colon && colon > word && *word != '/' && *word != '.' && strchr("/.", colon[1]) &&
	       colon[1] && !mfs_mirror_is_url(word) && access(word, F_OK);
}

static int add_word(struct mfs_serve_config *c, const char *word, const char *options,
		    struct mfs_error *err)
{
	const size_t len = name_length(word);
	char *name = NULL;

	if (mfs_serve_config_is(word))
		return mfs_serve_config_read(c, word, err);
	if (!len && has_colon(word))
		return mfs_fail(err, -EINVAL,
				"there is no '%s': a repository is named ORG/NAME=SOURCE, with '='",
				word);
	if (len) {
		name = mfs_arena_strndup(&c->arena, word, len);
		if (!name)
			return mfs_fail_nomem(err);
		word += len + 1;
	}
	return mfs_serve_config_add(c, name, word, options, err);
}

/* -o counts for the sources of the command line. */
static int check_options(const struct given *given, struct mfs_error *err)
{
	const struct mfs_options *opt = given->process;
	bool has_source = false;
	int rc = mfs_serve_options_check(opt, true, err);

	for (int i = 0; i < MFS_CMDLINE_ARGUMENTS && given->words[i]; i++)
		has_source |= !mfs_serve_config_is(given->words[i]);
	if (!rc && !has_source && mfs_serve_options_of_sources(opt))
		rc = mfs_fail(err, -EINVAL,
			      "-o %s: a configuration says the options of its repositories itself",
			      mfs_serve_options_of_sources(opt));
	return rc ? rc : mfs_rights_check_user(opt, err);
}

int mfs_cmd_serve(int argc, char **argv)
{
	struct mfs_error err;
	struct serve s = {.lock = PTHREAD_MUTEX_INITIALIZER};
	struct given *given = &s.given;
	struct mfs_buf o = {0};
	struct mfs_cmdline c = {
		.usage = "serve CONFIG|[ORG/NAME=]SOURCE... [--listen ADDRESS] [-o OPTIONS]",
		.help = "Serves checkpoints and datasets over HTTP, as a HuggingFace Hub does:\n"
			"HF_ENDPOINT=http://HOST:PORT vllm serve ORG/NAME reads them unchanged.\n"
			"A model is ORG/NAME, at another layout ORG/NAME__megatron.torch.tp4-pp2;\n"
			"its iterations are revisions, and main is the newest. Without a name it\n"
			"is " MFS_REPO_ORG "/ and the last part of SOURCE. A directory of sources\n"
			"serves each (ORG/* with a name). CONFIG is a file *.yaml.\n",
		.help_end =
			"  --listen ADDRESS    HOST:PORT, :PORT, unix:PATH (" MFS_HTTP_LISTEN ")\n"
			"  --listen-s3 ADDRESS S3, read only: s3://ORG/NAME/REVISION/FILE\n"
			"  --tokens FILE       who may read what: NAME TOKEN PATTERN... a line\n"
			"  --access-log FILE   a line for each request; - is standard output\n"
			"  --certificate FILE  TLS, with --key FILE; both PEM\n"
			"  --data-node URL     who sends the Hub's files, by signed addresses\n"
			"  --url-secret FILE   what signs them: the node has the same\n"
			"  --links DIR[:DIR]   where links may lead out of their source\n"
			"See docs/GATEWAY.md.\n",
		.min = 1,
		.max = MFS_CMDLINE_ARGUMENTS,
		.valued = {{"listen", MFS_VALUE_TEXT, &given->listen[MFS_LISTENER_WEB]},
			   {"listen-s3", MFS_VALUE_TEXT, &given->listen[MFS_LISTENER_S3]},
			   {"tokens", MFS_VALUE_TEXT, &given->tokens},
			   {"access-log", MFS_VALUE_TEXT, &given->access_log},
			   {"certificate", MFS_VALUE_TEXT, &given->certificate},
			   {"key", MFS_VALUE_TEXT, &given->key},
			   {"data-node", MFS_VALUE_TEXT, &given->data_node},
			   {"url-secret", MFS_VALUE_TEXT, &given->url_secret},
			   {"links", MFS_VALUE_TEXT, &given->links}},
		.o_list = &o,
	};
	int exit_code;

	if (mfs_cmdline_parse(&c, argc, argv, &exit_code)) {
		memcpy(given->words, c.arguments, sizeof(given->words));
		given->options = o.data;
		given->process = &c.options;
		if (c.options.log_json)
			mfs_log_set_json();
		exit_code = check_options(given, &err) ? mfs_usage_error("%s", err.msg) : serve(&s);
	}
	release(&s);
	mfs_buf_release(&o);
	return mfs_cmdline_end(&c, exit_code);
}
