/* Arguments that are not supported here. */
#ifndef MFT_TRAINER_CONFIG_REFUSE_H
#define MFT_TRAINER_CONFIG_REFUSE_H

#include "formats/base/buf.h"
#include "formats/base/error.h"
#include "trainer/config/value.h"

/* Fails if a flag has a value that is not supported. -ENOTSUP: the message names the first one, and
 * what is nearest. */
int mft_flags_refuse(const struct mft_flag_values *v, struct mfs_error *err);

/* Appends what was given and has no effect here, as "--x, --y, model.z"; nothing if there is
 * nothing. Of a YAML file, what is not the default. */
void mft_flags_unused(const struct mft_flag_values *v, struct mfs_buf *out);

#endif
