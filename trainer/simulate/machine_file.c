#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/yaml_tree.h"
#include "trainer/simulate/machine.h"

struct reader {
	const char *name;
	struct mft_machine *m;
	struct mfs_error *err;
};

static int fail(const struct reader *r, const struct mfs_yaml_node *n, const char *what)
{
	return mfs_fail(r->err, -EINVAL, "%s: line %u: %s", r->name, n->line, what);
}

/* ---- values ---- */

static int read_number(const struct reader *r, const struct mfs_yaml_node *n, double *ret)
{
	if (mfs_yaml_real(n, ret) && *ret > 0 && *ret <= FLT_MAX)
		return 0;
	return fail(r, n, "expected a number above 0");
}

/* "expected fp32, bf16 and fp16" */
static int fail_products(const struct reader *r, const struct mfs_yaml_node *n)
{
	char text[64] = "expected";

	for (int i = 0; i < MFK_STORED_COUNT; i++) {
		const size_t end = strlen(text);

		snprintf(text + end, sizeof(text) - end, "%s %s",
			 !i			    ? ""
			 : i + 1 < MFK_STORED_COUNT ? ","
						    : " and",
			 mfk_dtype_row((enum mfk_dtype)i)->word);
	}
	return fail(r, n, text);
}

/* Elements of 8 bits may be left out: they are multiplied as fast as bf16 is then. */
static int read_products(const struct reader *r, const struct mfs_yaml_node *n)
{
	int rc = n->kind == MFS_YAML_MAPPING ? 0 : fail_products(r, n);

	for (const struct mfs_yaml_node *k = n->first; k && !rc; k = k->next->next) {
		int i = 0;

		while (i < MFK_DTYPE_COUNT &&
		       strcmp(mfk_dtype_row((enum mfk_dtype)i)->word, k->text))
			i++;
		rc = i < MFK_DTYPE_COUNT ? read_number(r, k->next, &r->m->products[i])
					 : fail_products(r, k);
		if (!rc)
			r->m->products[i] *= 1e12;
	}
	for (int i = 0; i < MFK_STORED_COUNT && !rc; i++)
		if (r->m->products[i] <= 0)
			rc = fail_products(r, n);
	for (int i = MFK_STORED_COUNT; i < MFK_DTYPE_COUNT && !rc; i++)
		if (r->m->products[i] <= 0)
			r->m->products[i] = r->m->products[MFK_BF16];
	return rc;
}

static int read_heads(const struct reader *r, const struct mfs_yaml_node *n)
{
	static const char *const expected =
		"expected a list of one to eight lists: two sizes of a head, forward, backward";

	for (const struct mfs_yaml_node *i = n->first; i; i = i->next) {
		struct mft_machine_heads *h = &r->m->heads[r->m->head_count];
		double *const to[] = {&h->qk_dim, &h->v_dim, &h->forward, &h->backward};
		const struct mfs_yaml_node *value = i->first;

		if (n->kind != MFS_YAML_SEQUENCE || i->kind != MFS_YAML_SEQUENCE ||
		    r->m->head_count == MFT_MACHINE_HEADS)
			return fail(r, i, expected);
		for (unsigned k = 0; k < 4; k++, value = value->next)
			if (!value || read_number(r, value, to[k]))
				return fail(r, i, expected);
		if (value)
			return fail(r, i, expected);
		h->forward *= 1e12;
		h->backward *= 1e12;
		r->m->head_count++;
	}
	return r->m->head_count ? 0 : fail(r, n, expected);
}

static int read_shares(const struct reader *r, const struct mfs_yaml_node *n)
{
	struct mft_machine *m = r->m;
	int rc = 0;

	if (n->kind != MFS_YAML_MAPPING)
		return fail(r, n, "expected shares of operations, and of other");
	for (const struct mfs_yaml_node *k = n->first; k && !rc; k = k->next->next) {
		struct mft_machine_share *s = &m->shares[m->share_count];
		const bool other = !strcmp(k->text, "other");

		if (!other &&
		    (m->share_count == MFT_MACHINE_SHARES || strlen(k->text) >= sizeof(s->name)))
			return fail(r, k, "too many operations, or too long a name");
		rc = read_number(r, k->next, other ? &m->other_share : &s->share);
		if (!other && !rc) {
			snprintf(s->name, sizeof(s->name), "%s", k->text);
			m->share_count++;
		}
	}
	return rc || m->other_share > 0 ? rc : fail(r, n, "expected a share of other");
}

static int read_name(const struct reader *r, const struct mfs_yaml_node *n)
{
	if (n->kind != MFS_YAML_SCALAR || strlen(n->text) >= sizeof(r->m->name))
		return fail(r, n, "expected a name of at most 63 bytes");
	snprintf(r->m->name, sizeof(r->m->name), "%s", n->text);
	return 0;
}

static int read_gpus(const struct reader *r, const struct mfs_yaml_node *n)
{
	double gpus = 0;
	const int rc = read_number(r, n, &gpus);

	if (rc || gpus != floor(gpus) || gpus > 1024)
		return fail(r, n, "expected a number from 1 to 1024");
	r->m->gpus_per_host = (unsigned)gpus;
	return 0;
}

static int read_busy_link(const struct reader *r, const struct mfs_yaml_node *n)
{
	const int rc = read_number(r, n, &r->m->busy_link);

	return rc || r->m->busy_link >= 1 ? fail(r, n, "expected a share of 1") : 0;
}

/* ---- keys ---- */

#define GIB	  ((double)(UINT64_C(1) << 30))
#define AT(field) offsetof(struct mft_machine, field)

static const struct key {
	const char *name;
	int (*read)(const struct reader *r, const struct mfs_yaml_node *n);
	size_t at; /* without read: a number */
	double unit;
	bool optional;
} keys[] = {
	{"name", read_name, 0, 0, false},
	{"memory_gib", NULL, AT(memory), GIB, false},
	{"multiprocessors", NULL, AT(units), 1, false},
	{"products_tflops", read_products, 0, 0, false},
	{"groups_of_products", NULL, AT(groups_of_products), 1, false},
	{"attention_tflops", read_heads, 0, 0, false},
	{"memory_tb_per_s", NULL, AT(bandwidth), 1e12, false},
	{"shares", read_shares, 0, 0, false},
	{"launch_us", NULL, AT(launch), 1e-6, false},
	{"host_gb_per_s", NULL, AT(host_bandwidth), 1e9, false},
	{"host_memory_gib", NULL, AT(host_memory), GIB, true},
	{"gpus_per_host", read_gpus, 0, 0, false},
	{"link_gb_per_s", NULL, AT(link), 1e9, false},
	{"link_us", NULL, AT(link_latency), 1e-6, false},
	{"busy_link", read_busy_link, 0, 0, false},
	{"network_gb_per_s", NULL, AT(network), 1e9, false},
	{"network_us", NULL, AT(network_latency), 1e-6, false},
};
#define KEYS MFS_ARRAY_SIZE(keys)

static int read_key(const struct reader *r, const struct mfs_yaml_node *n, uint32_t *seen)
{
	for (size_t i = 0; i < KEYS; i++) {
		double *to = (double *)((char *)r->m + keys[i].at);
		int rc;

		if (strcmp(keys[i].name, n->text))
			continue;
		*seen |= 1u << i;
		if (keys[i].read)
			return keys[i].read(r, n->next);
		rc = read_number(r, n->next, to);
		*to *= keys[i].unit;
		return rc;
	}
	return mfs_fail(r->err, -EINVAL, "%s: line %u: '%.80s' is nothing that a machine has",
			r->name, n->line, n->text);
}

int mft_machine_parse(const char *name, const void *bytes, size_t len, struct mft_machine *ret,
		      struct mfs_error *err)
{
	struct mfs_arena arena = {0};
	struct mfs_yaml_node *root = NULL;
	const struct reader r = {name, ret, err};
	uint32_t seen = 0;
	int rc = mfs_yaml_tree(name, bytes, len, MFS_YAML_PLAIN, &arena, &root, err);

	*ret = (struct mft_machine){0};
	if (!rc && (!root || root->kind != MFS_YAML_MAPPING))
		rc = mfs_fail(err, -EINVAL, "%s: expected a mapping of what a machine has", name);
	for (const struct mfs_yaml_node *n = root ? root->first : NULL; n && !rc; n = n->next->next)
		rc = read_key(&r, n, &seen);
	for (size_t i = 0; i < KEYS && !rc; i++)
		if (!(seen & 1u << i) && !keys[i].optional)
			rc = mfs_fail(err, -EINVAL, "%s: '%s' is missing", name, keys[i].name);
	mfs_arena_release(&arena);
	return rc;
}
