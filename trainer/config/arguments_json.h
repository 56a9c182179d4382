/* All arguments as JSON, for code that keeps them with what a run has logged. */
#ifndef MFT_TRAINER_CONFIG_ARGUMENTS_JSON_H
#define MFT_TRAINER_CONFIG_ARGUMENTS_JSON_H

#include "formats/base/buf.h"
#include "trainer/config/value.h"

/* Appends an object of Megatron's dests. Lists and tuples are arrays; what JSON has no word for
 * (torch.bfloat16, a member of an enum) is a text as Python shows it. */
void mft_arguments_json(const struct mft_flag_values *v, struct mfs_buf *out);

#endif
