#include "fs/stats/prom_sources.h"

#include <string.h>

#include "formats/base/array.h"
#include "formats/base/tally.h"
#include "fs/stats/prom.h"

#define READ	"mcorefs_source_read_bytes_total"
#define CONVERT "mcorefs_convert_bytes_total"

static const struct {
	enum mfs_tally of;
	const char *name, *help, *labels;
} rows[] = {
	{MFS_TALLY_READ_LOCAL, READ,
	 "Bytes of sources that replies were made of; of datasets, as they are shown.",
	 "backend=\"local\""},
	{MFS_TALLY_READ_REMOTE, READ, NULL, "backend=\"remote\""},
	{MFS_TALLY_TRANSPOSE, CONVERT,
	 "Bytes of tensors, as sources store them, that were not sent as they lie there.",
	 "kernel=\"transpose\""},
	{MFS_TALLY_CAST, CONVERT, NULL, "kernel=\"cast\""},
	{MFS_TALLY_SHIFT, CONVERT, NULL, "kernel=\"shift\""},
	{MFS_TALLY_QUANTISE, CONVERT, NULL, "kernel=\"quantise\""},
	{MFS_TALLY_DEQUANTISE, CONVERT, NULL, "kernel=\"dequantise\""},
	{MFS_TALLY_MERGE, CONVERT, NULL, "kernel=\"merge\""},
	{MFS_TALLY_CHANGED, "mcorefs_source_changed_total",
	 "Sources that were found to have changed after they were opened.", NULL},
};

void mfs_prom_sources(struct mfs_buf *out, const char *common)
{
	const char *family = "";

	for (size_t i = 0; i < MFS_ARRAY_SIZE(rows); i++) {
		if (strcmp(rows[i].name, family) != 0)
			mfs_prom_head(out, rows[i].name, "counter", rows[i].help);
		family = rows[i].name;
		mfs_prom_value(out, rows[i].name, "", common, rows[i].labels,
			       (double)mfs_tally_sum(rows[i].of));
	}
}
