#include "fs/stats/prom.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/base/clock.h"
#include "formats/base/version.h"

void mfs_prom_head(struct mfs_buf *out, const char *name, const char *type, const char *help)
{
	mfs_buf_printf(out, "# HELP %s ", name);
	for (const char *p = help ? help : ""; *p; p++) {
		if (*p == '\\' || *p == '\n')
			mfs_buf_adds(out, *p == '\n' ? "\\n" : "\\\\");
		else
			mfs_buf_add(out, p, 1);
	}
	mfs_buf_printf(out, "\n# TYPE %s %s\n", name, type);
}

static void add_labels(struct mfs_buf *out, const char *common, const char *labels, const char *le)
{
	const char *const lists[] = {common, labels, le};
	const char *before = "{";

	for (size_t i = 0; i < MFS_ARRAY_SIZE(lists); i++) {
		if (!lists[i] || !*lists[i])
			continue;
		mfs_buf_printf(out, "%s%s", before, lists[i]);
		before = ",";
	}
	if (*before == ',')
		mfs_buf_adds(out, "}");
}

static void add_number(struct mfs_buf *out, double value)
{
	if (isinf(value))
		mfs_buf_adds(out, value < 0 ? "-Inf" : "+Inf");
	else if (value == floor(value) && fabs(value) < 9007199254740992.0)
		mfs_buf_printf(out, "%.0f", value);
	else
		mfs_buf_printf(out, "%.15g", value);
}

void mfs_prom_value(struct mfs_buf *out, const char *name, const char *suffix, const char *common,
		    const char *labels, double value)
{
	mfs_buf_printf(out, "%s%s", name, suffix);
	add_labels(out, common, labels, NULL);
	mfs_buf_adds(out, " ");
	add_number(out, value);
	mfs_buf_adds(out, "\n");
}

void mfs_prom_bucket(struct mfs_buf *out, const char *name, const char *common, const char *labels,
		     double le, uint64_t count)
{
	struct mfs_buf bound = {0};

	mfs_buf_adds(&bound, "le=\"");
	add_number(&bound, le);
	mfs_buf_adds(&bound, "\"");
	if (bound.failed)
		out->failed = true;
	mfs_buf_printf(out, "%s_bucket", name);
	add_labels(out, common, labels, bound.data);
	mfs_buf_adds(out, " ");
	add_number(out, (double)count);
	mfs_buf_adds(out, "\n");
	mfs_buf_release(&bound);
}

void mfs_prom_gauge(struct mfs_buf *out, const char *name, const char *help, const char *common,
		    double value)
{
	mfs_prom_head(out, name, "gauge", help);
	mfs_prom_value(out, name, "", common, NULL, value);
}

void mfs_prom_build(struct mfs_buf *out, const char *common, const char *front)
{
	struct mfs_buf labels = {0};

	mfs_prom_label(&labels, "version", MFS_VERSION);
	mfs_prom_label(&labels, "front", front);
	if (labels.failed)
		out->failed = true;
	mfs_prom_head(out, "mcorefs_build_info", "gauge", "The program.");
	mfs_prom_value(out, "mcorefs_build_info", "", common, labels.data, 1);
	mfs_buf_release(&labels);
}

void mfs_prom_label(struct mfs_buf *labels, const char *name, const char *value)
{
	mfs_buf_printf(labels, "%s%s=\"", labels->len ? "," : "", name);
	for (const char *p = value; *p; p++) {
		if (*p == '\n')
			mfs_buf_adds(labels, "\\n");
		else if (*p == '"' || *p == '\\')
			mfs_buf_printf(labels, "\\%c", *p);
		else
			mfs_buf_add(labels, p, 1);
	}
	mfs_buf_adds(labels, "\"");
}

static double resident_bytes(void)
{
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	if (f && fscanf(f, "%*u %lu", &pages) != 1)
		pages = 0;
	if (f)
		fclose(f);
	return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static double seconds(struct timeval t)
{
	return (double)t.tv_sec + (double)t.tv_usec * 1e-6;
}

static void gauge(struct mfs_buf *out, const char *prefix, const char *what, const char *help,
		  const char *common, double value)
{
	char name[128];

	snprintf(name, sizeof(name), "%s_%s", prefix, what);
	mfs_prom_gauge(out, name, help, common, value);
}

void mfs_prom_process(struct mfs_buf *out, const char *prefix, const char *common, int64_t began)
{
	struct rusage used = {0};

	getrusage(RUSAGE_SELF, &used);
	gauge(out, prefix, "uptime", "Seconds since the start.", common,
	      (double)(mfs_now_ns() - began) * 1e-9);
	gauge(out, prefix, "memory", "Resident bytes of the process.", common, resident_bytes());
	gauge(out, prefix, "cpu_usage", "Seconds of processor time of the process.", common,
	      seconds(used.ru_utime) + seconds(used.ru_stime));
}
