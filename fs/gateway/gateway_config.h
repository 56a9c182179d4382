/*
 * What a gateway is told: by its command line, or by a file of YAML.
 *
 *   listen: 0.0.0.0:8080
 *   listen_s3: 0.0.0.0:9000
 *   tokens: /etc/mcorefs/tokens
 *   access_log: /var/log/mcorefs/access.log
 *   certificate: /etc/mcorefs/cert.pem
 *   key: /etc/mcorefs/key.pem
 *   data_node: https://node7:8443
 *   url_secret: /etc/mcorefs/url-secret
 *   trusted_proxies: [10.0.0.0/8, unix]
 *   links: [/archive]
 *   limits: {connections: 2048, per_address: 1024, idle_seconds: 75, stall_seconds: 60,
 *            header_bytes: 16384, open: 32, grace_seconds: 10, url_seconds: 3600}
 *   repositories:
 *     lab/llama: /ckpts/llama
 *     lab/mixtral: {source: /ckpts/mixtral, options: "vocab_size=32000,ref=/hf/mixtral"}
 *     runs/STAR: /ckpts/runs          with a star for STAR: each directory in it
 */
#ifndef MFS_FS_GATEWAY_GATEWAY_CONFIG_H
#define MFS_FS_GATEWAY_GATEWAY_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "fs/cli/options.h"
#include "fs/gateway/access/proxies.h"
#include "fs/http/http_server.h"

/* The addresses that a gateway listens on: X(LISTENER, KEY, ADDRESS, TITLE). KEY names it in the
 * file; ADDRESS is that without one, NULL: there is no such listener then; TITLE stands in the log.
 * What each answers: gateway.c. */
#define MFS_LISTENER_ROWS(X)                                                                       \
	X(WEB, "listen", MFS_HTTP_LISTEN, "serving")                                               \
	X(S3, "listen_s3", NULL, "S3")

#define MFS_LISTENER_ENUM(listener, key, address, title) MFS_LISTENER_##listener,
enum mfs_listener { MFS_LISTENER_ROWS(MFS_LISTENER_ENUM) MFS_LISTENERS };

struct mfs_serve_source {
	const char *name; /* NULL: as SOURCE is named */
	const char *source;
	struct mfs_options options; /* of -o */
	struct mfs_serve_source *next;
};

struct mfs_serve_link {
	const char *dir;
	struct mfs_serve_link *next;
};

/* Texts are in the arena, or borrowed from the command line. NULL and 0: not given. */
struct mfs_serve_config {
	struct mfs_arena arena;
	const char *listen[MFS_LISTENERS]; /* addresses */
	const char *tokens, *access_log, *certificate, *key;
	const char *data_node, *url_secret;
	struct mfs_proxies proxies;
	struct mfs_serve_link *links; /* directories into which links of sources may lead */
	struct mfs_http_limits limits;
	unsigned open, grace_seconds, url_seconds;
	struct mfs_serve_source *first, **end; /* in their order */
};

void mfs_serve_config_init(struct mfs_serve_config *c);
void mfs_serve_config_release(struct mfs_serve_config *c);

/* Whether an argument is a file of this kind: its name ends with .yaml or .yml. */
bool mfs_serve_config_is(const char *argument);
/* Adds what a file says. -EINVAL: it is not such a file; the message has name and line. */
int mfs_serve_config_read(struct mfs_serve_config *c, const char *path, struct mfs_error *err);
int mfs_serve_config_parse(struct mfs_serve_config *c, const char *name, const char *text,
			   size_t len, struct mfs_error *err);
/* Checks the settings against each other, when nothing more is added. -EINVAL. */
int mfs_serve_config_check(const struct mfs_serve_config *c, struct mfs_error *err);
/* Adds a SOURCE; options: a list as of -o, or NULL. */
int mfs_serve_config_add(struct mfs_serve_config *c, const char *name, const char *source,
			 const char *options, struct mfs_error *err);

/* Adds directories, with ':' between them. -ENOMEM. */
int mfs_serve_config_add_links(struct mfs_serve_config *c, const char *dirs, struct mfs_error *err);

/* Which of -o a gateway takes. -EINVAL: one that says nothing of a gateway, or nothing of one
 * repository; the message names it, and says what to do instead. whole: those of the command
 * line, which say how the process runs, too. */
int mfs_serve_options_check(const struct mfs_options *opt, bool whole, struct mfs_error *err);
/* The first option that applies to sources only, as "name=value". NULL: there is none. */
const char *mfs_serve_options_of_sources(const struct mfs_options *opt);

#endif
