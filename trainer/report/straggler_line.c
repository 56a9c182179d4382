#include "trainer/report/straggler_line.h"

#include <stddef.h>
#include <stdlib.h>

#include "formats/base/array.h"

#define LOGGER "INFO:megatron.core.utils:"

/* What is compared, in the line's order, but for throughput. */
static const struct {
	const char *name, *unit;
	size_t at;
} values[] = {
	{"Rtt", "ms", offsetof(struct mft_straggler_rank, rtt_ms)},
	{"Pwr", "W", offsetof(struct mft_straggler_rank, watts)},
	{"Tmp", "C", offsetof(struct mft_straggler_rank, celsius)},
	{"Utl", "%", offsetof(struct mft_straggler_rank, utilization)},
	{"Clk", "MHz", offsetof(struct mft_straggler_rank, mhz)},
	{"DRtt", "ms", offsetof(struct mft_straggler_rank, data_ms)},
};

static double value_of(const struct mft_straggler_rank *r, size_t at)
{
	return *(const double *)((const char *)r + at);
}

/* Of equal ones the first rank, as min() and max() of Python. */
static uint32_t find(const struct mft_straggler_rank *all, uint32_t count, size_t at, int sign)
{
	uint32_t found = 0;

	for (uint32_t i = 1; i < count; i++)
		if (sign * value_of(&all[i], at) > sign * value_of(&all[found], at))
			found = i;
	return found;
}

static void add_value(struct mfs_buf *b, const struct mft_straggler_rank *all, uint32_t count,
		      size_t i, int sign)
{
	const uint32_t rank = find(all, count, values[i].at, sign);

	mfs_buf_printf(b, " | %s%s/Rnk: %.2f%s/%u", sign < 0 ? "Mn" : "Mx", values[i].name,
		       value_of(&all[rank], values[i].at), values[i].unit, rank);
}

struct sorted {
	double tflops;
	uint32_t rank;
};

static int compare(const void *one, const void *other)
{
	const struct sorted *a = one, *b = other;

	if (a->tflops != b->tflops)
		return a->tflops < b->tflops ? -1 : 1;
	return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static void add_some(struct mfs_buf *b, const char *which, const struct sorted *list, int64_t count)
{
	mfs_buf_printf(b, which, (long long)count);
	for (int64_t i = 0; i < count; i++)
		mfs_buf_printf(b, " %.2f/%u,", list[i].tflops, list[i].rank);
	mfs_buf_adds(b, "\n");
}

bool mft_report_straggler(struct mfs_buf *b, time_t now, const struct mft_straggler_rank *all,
			  uint32_t count, int64_t minmax)
{
	struct sorted *list = calloc(count, sizeof(*list));
	struct tm tm;
	char text[32];

	if (!list)
		return false;
	for (uint32_t i = 0; i < count; i++)
		list[i] = (struct sorted){all[i].tflops, i};
	qsort(list, count, sizeof(*list), compare);
	localtime_r(&now, &tm);
	strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &tm);
	mfs_buf_printf(b, LOGGER "[%s]", text);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(values); i++) {
		add_value(b, all, count, i, -1);
		add_value(b, all, count, i, 1);
	}
	mfs_buf_printf(b, " | MnEtpt/Rnk: %.2fTF/%u | MxEtpt/Rnk: %.2fTF/%u\n", list[0].tflops,
		       list[0].rank, list[count - 1].tflops, list[count - 1].rank);
	if (minmax > 1 && minmax < count) {
		add_some(b, LOGGER "^^^^ Bottom %lld Ranks with lowest  Etpt(TF):", list, minmax);
		add_some(b, LOGGER "^^^^ Top    %lld Ranks with highest Etpt(TF):",
			 list + count - minmax, minmax);
	}
	free(list);
	return true;
}
