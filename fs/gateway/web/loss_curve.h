/* A small picture of a training loss, and its numbers. */
#ifndef MFS_FS_GATEWAY_WEB_LOSS_CURVE_H
#define MFS_FS_GATEWAY_WEB_LOSS_CURVE_H

#include "formats/base/buf.h"
#include "formats/run/curve.h"

/* Adds it as SVG, drawn by its finite points; nothing for fewer than two of these. */
void mfs_page_add_curve(struct mfs_buf *b, const struct mfs_curve *c);

#endif
