#include "trainer/loop/stops.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>

#include "formats/base/array.h"
#include "formats/hf/hf_json.h"

#define CONFIG_MAX (1u << 20) /* bytes of generation_config.json */

static void add(uint32_t *stops, size_t *count, int64_t id)
{
	for (size_t i = 0; i < *count; i++)
		if (stops[i] == id)
			return;
	if (id >= 0 && id <= UINT32_MAX)
		stops[(*count)++] = (uint32_t)id;
}

static void add_json(uint32_t *stops, size_t *count, const json_t *id)
{
	if (json_is_integer(id))
		add(stops, count, json_integer_value(id));
}

/* NULL and 0: there is no such file. */
static int read_config(const struct mft_stops_of *of, json_t **ret, struct mfs_error *err)
{
	char *text = NULL;
	size_t len;
	int rc = -ENOENT;

	*ret = NULL;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(of->dirs) && rc == -ENOENT; i++)
		if (of->dirs[i] && *of->dirs[i])
			rc = mfs_hf_slurp(of->dirs[i], "generation_config.json", CONFIG_MAX, &text,
					  &len, err);
	if (!rc)
		rc = mfs_json_load(text, len, CONFIG_MAX, 0, "generation_config.json", ret, err);
	free(text);
	return rc == -ENOENT ? 0 : rc;
}

int mft_stops_find(const struct mft_stops_of *of, uint32_t **ret, size_t *ret_count,
		   struct mfs_error *err)
{
	json_t *root, *eos;
	int rc = read_config(of, &root, err);

	if (rc)
		return rc;
	eos = json_object_get(root, "eos_token_id");
	*ret_count = 0;
	*ret = calloc(json_array_size(eos) + 3, sizeof(**ret));
	if (*ret) {
		add_json(*ret, ret_count, eos);
		for (size_t i = 0; i < json_array_size(eos); i++)
			add_json(*ret, ret_count, json_array_get(eos, i));
		add(*ret, ret_count, of->eod);
		add(*ret, ret_count, of->eos);
	}
	json_decref(root);
	return *ret ? 0 : mfs_fail_nomem(err);
}
