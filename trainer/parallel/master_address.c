#include "trainer/parallel/master_address.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"

/* Of a bracket the first number: what stands before ',', '-' or ']'. */
int mft_first_host(const char *list, char *ret, size_t size, struct mfs_error *err)
{
	const char *s = list;
	size_t len = 0;

	while (*s && *s != ',') {
		const size_t plain = strcspn(s, "[,");
		const char *number = s + plain + 1, *end;
		size_t digits = 0;

		if (len + plain >= size)
			break;
		memcpy(ret + len, s, plain);
		len += plain;
		s += plain;
		if (*s != '[')
			continue;
		digits = strspn(number, "0123456789");
		end = strchr(number, ']');
		if (!digits || !strchr(",-]", number[digits]) || !end || len + digits >= size)
			break;
		memcpy(ret + len, number, digits);
		len += digits;
		s = end + 1;
	}
	if (!len || (*s && *s != ','))
		return mfs_fail(err, -EINVAL, "expected a list of hosts, found '%.80s'", list);
	ret[len] = '\0';
	return 0;
}

static int find_host(const struct mft_launch *launch, struct mft_address *ret,
		     struct mfs_error *err)
{
	const char *given = getenv("MASTER_ADDR"), *list = getenv("SLURM_STEP_NODELIST");

	if (!list)
		list = getenv("SLURM_JOB_NODELIST");
	if (given && *given) {
		if ((size_t)snprintf(ret->host, sizeof(ret->host), "%s", given) < sizeof(ret->host))
			return 0;
		return mfs_fail(err, -EINVAL, "MASTER_ADDR: expected a host's name, found '%.40s'",
				given);
	}
	if (!strcmp(launch->by, "srun") && list) {
		if (mft_first_host(list, ret->host, sizeof(ret->host), err))
			return mfs_fail_in(err, "the step's list of nodes");
		return 0;
	}
	if (launch->local_size == launch->size && strcmp(launch->by, "srun")) {
		snprintf(ret->host, sizeof(ret->host), "127.0.0.1");
		return 0;
	}
	return mfs_fail(err, -EINVAL,
			"%s started processes on several hosts, and nothing says where rank 0 is; "
			"set MASTER_ADDR to its host for all of them%s",
			launch->by, strcmp(launch->by, "mpirun") ? "" : " (-x MASTER_ADDR=HOST)");
}

static int take_port(const char *name, unsigned more, uint16_t *ret, struct mfs_error *err)
{
	const char *text = getenv(name);
	unsigned long value;
	char *end;

	if (!text || !*text)
		return 0;
	errno = 0;
	value = strtoul(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || !value || value + more > UINT16_MAX)
		return mfs_fail(err, -EINVAL, "%s: expected a port below %u, found '%.40s'", name,
				UINT16_MAX + 1 - more, text);
	*ret = (uint16_t)(value + more);
	return 0;
}

/* FNV-1a of what names the job. */
static uint64_t job_of(void)
{
	static const char *const names[] = {"TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "SLURM_JOB_ID",
					    "SLURM_STEP_ID"};
	uint64_t job = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < MFS_ARRAY_SIZE(names); i++) {
		const char *text = getenv(names[i]);

		for (const char *c = text ? text : ""; *c; c++)
			job = (job ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
		job = (job ^ '/') * UINT64_C(0x100000001b3);
	}
	return job;
}

int mft_address_find(const struct mft_launch *launch, struct mft_address *ret,
		     struct mfs_error *err)
{
	int rc = find_host(launch, ret, err);

	ret->job = job_of();
	ret->port = 0;
	if (!rc)
		rc = take_port("MCOREFS_PORT", 0, &ret->port, err);
	if (!rc && !ret->port)
		rc = take_port("MASTER_PORT", 1, &ret->port, err);
	if (!rc && !ret->port)
		ret->port = (uint16_t)(20000 + ret->job % 10000);
	return rc;
}
