/* The socket of a server. */
#ifndef MFS_FS_HTTP_LISTEN_H
#define MFS_FS_HTTP_LISTEN_H

#include "formats/base/error.h"

/* Binds and listens: "HOST:PORT", "[IPV6]:PORT", ":PORT" (all addresses), "unix:PATH", whose file
 * is replaced if it is a socket that nobody listens on. ret_text: the address with the port that
 * was taken. -EINVAL; -errno. */
#define MFS_LISTEN_TEXT 160
int mfs_listen(const char *address, int *ret_fd, char ret_text[MFS_LISTEN_TEXT],
	       struct mfs_error *err);

/* The server has ended: the file of its unix socket goes. address: what mfs_listen() has told. */
void mfs_listen_end(const char *address);

struct sockaddr;
/* "192.0.2.1:80", "[2001:db8::1]:80", "unix". */
void mfs_address_text(const struct sockaddr *address, char *text, size_t size);

#endif
