/*
 * The documents of --mock-data, as rows (rows.h): 100 000 of 1 to 4095 tokens, whose lengths are
 * numpy's of seed 0. A document counts 1, 2, 3, ... modulo the vocabulary, and ends with eod
 * (megatron/core/datasets/gpt_dataset.py: MockGPTLowLevelDataset).
 */
#ifndef MFS_DATASET_GPT_ROWS_MOCK_H
#define MFS_DATASET_GPT_ROWS_MOCK_H

#include <stdint.h>

#include "formats/dataset/rows/rows.h"

#define MFS_MOCK_DOCUMENTS 100000

/* vocab: what the tokenizer has, before it is padded; above 0. */
int mfs_rows_mock(uint32_t vocab, int32_t eod, struct mfs_rows **ret, struct mfs_error *err);

#endif
