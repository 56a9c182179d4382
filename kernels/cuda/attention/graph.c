#include "kernels/cuda/attention/graph.h"

#if __has_include(<cudnn.h>)

#include <stdio.h>
#include <string.h>

/* call: what failed. False if rc is an error; then why says so, if nothing was there. */
static bool worked(const struct cudnn_api *api, char *why, cudnnStatus_t rc, const char *call)
{
	char last[MFK_WHY] = "";

	if (rc == CUDNN_STATUS_SUCCESS)
		return true;
	if (!*why) {
		api->GetLastErrorString(last, sizeof(last));
		snprintf(why, MFK_WHY, "cuDNN %zu: %s: %s: %s", api->version, call,
			 api->GetErrorString(rc), last);
	}
	return false;
}

void graph_init(struct graph *g, const struct cudnn_api *api, cudnnHandle_t handle,
		cudnnDataType_t io, int64_t first_virtual)
{
	memset(g, 0, sizeof(*g));
	g->api = api;
	g->handle = handle;
	g->io = io;
	g->next = g->first_virtual = first_virtual;
}

void graph_release(struct graph *g)
{
	while (g->objects_count)
		g->api->BackendDestroyDescriptor(g->objects[--g->objects_count]);
}

/* ---- descriptors; none is touched after the first failure ---- */

static cudnnBackendDescriptor_t create(struct graph *g, cudnnBackendDescriptorType_t type,
				       const char *what)
{
	cudnnBackendDescriptor_t d = NULL;
	char call[64];

	if (*g->why)
		return NULL;
	if (g->objects_count == GRAPH_OBJECTS) {
		snprintf(g->why, MFK_WHY, "a graph of more than %d objects", GRAPH_OBJECTS);
		return NULL;
	}
	snprintf(call, sizeof(call), "creating %s", what);
	if (!worked(g->api, g->why, g->api->BackendCreateDescriptor(type, &d), call))
		return NULL;
	return g->objects[g->objects_count++] = d;
}

static void set(struct graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
		cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
	char call[64];

	if (*g->why)
		return;
	snprintf(call, sizeof(call), "setting attribute %d", (int)name);
	worked(g->api, g->why, g->api->BackendSetAttribute(d, name, type, count, values), call);
}

static void set_object(struct graph *g, cudnnBackendDescriptor_t d,
		       cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value)
{
	set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void finalize(struct graph *g, cudnnBackendDescriptor_t d, const char *what)
{
	char call[96];

	if (*g->why)
		return;
	snprintf(call, sizeof(call), "finalizing %s", what);
	worked(g->api, g->why, g->api->BackendFinalize(d), call);
}

/* ---- tensors ---- */

int64_t graph_virtual(struct graph *g)
{
	return g->next++;
}

static cudnnBackendDescriptor_t tensor(struct graph *g, int64_t id, cudnnDataType_t type,
				       const int64_t *dims, const int64_t *strides, bool by_value)
{
	cudnnBackendDescriptor_t d = create(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR, "a tensor");
	bool is_virtual = id >= g->first_virtual;
	int64_t align = 16;
	char what[64];

	set(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
	set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
	set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
	set(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
	set(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
	if (is_virtual)
		set(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
	if (by_value)
		set(g, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
	snprintf(what, sizeof(what), "tensor %d", (int)id);
	finalize(g, d, what);
	return d;
}

cudnnBackendDescriptor_t graph_tensor(struct graph *g, int64_t id, cudnnDataType_t type,
				      const int64_t *dims, const int64_t *strides)
{
	return tensor(g, id, type, dims, strides, false);
}

cudnnBackendDescriptor_t graph_scalar(struct graph *g, int64_t id)
{
	static const int64_t ones[] = {1, 1, 1, 1};

	return tensor(g, id, CUDNN_DATA_FLOAT, ones, ones, true);
}

/* ---- operations ---- */

static void add(struct graph *g, cudnnBackendDescriptor_t op, const char *name)
{
	char what[64];

	snprintf(what, sizeof(what), "operation %d (%s)", g->ops_count, name);
	finalize(g, op, what);
	if (!*g->why && g->ops_count == GRAPH_OPS)
		snprintf(g->why, MFK_WHY, "a graph of more than %d operations", GRAPH_OPS);
	if (!*g->why)
		g->ops[g->ops_count++] = op;
}

void graph_matmul(struct graph *g, cudnnBackendDescriptor_t a, cudnnBackendDescriptor_t b,
		  cudnnBackendDescriptor_t c)
{
	cudnnBackendDescriptor_t how = create(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR, "a product");
	cudnnBackendDescriptor_t op =
		create(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, "an operation");
	cudnnDataType_t compute = CUDNN_DATA_FLOAT;

	set(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
	finalize(g, how, "a product");
	set_object(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
	set_object(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
	set_object(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
	set_object(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
	add(g, op, "matmul");
}

void graph_pointwise(struct graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t compute,
		     int64_t axis, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
		     cudnnBackendDescriptor_t t, cudnnBackendDescriptor_t y)
{
	cudnnBackendDescriptor_t how =
		create(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "a pointwise mode");
	cudnnBackendDescriptor_t op =
		create(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "an operation");
	char name[32];

	set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
	set(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
	if (axis >= 0)
		set(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
	finalize(g, how, "a pointwise mode");
	set_object(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
	set_object(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
	if (b)
		set_object(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
	if (t)
		set_object(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
	set_object(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
	snprintf(name, sizeof(name), "pointwise %d", (int)mode);
	add(g, op, name);
}

void graph_reduce(struct graph *g, cudnnReduceTensorOp_t reduce, cudnnBackendDescriptor_t x,
		  cudnnBackendDescriptor_t y)
{
	cudnnBackendDescriptor_t how = create(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, "a reduction");
	cudnnBackendDescriptor_t op =
		create(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, "an operation");
	cudnnDataType_t compute = CUDNN_DATA_FLOAT;

	set(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
	set(g, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &reduce);
	finalize(g, how, "a reduction");
	set_object(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
	set_object(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
	set_object(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
	add(g, op, "reduction");
}

void graph_reshape(struct graph *g, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t y)
{
	cudnnBackendDescriptor_t op =
		create(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, "an operation");

	set_object(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
	set_object(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
	add(g, op, "reshape");
}

/* ---- compiling and running ---- */

enum { CONFIGS = 16 };

/* The heuristic's engine configurations, best first. Returns how many. */
static int64_t configs_of(struct graph *g, cudnnBackendDescriptor_t *configs)
{
	cudnnBackendDescriptor_t all =
		create(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "a graph");
	cudnnBackendDescriptor_t heuristic =
		create(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "a heuristic");
	cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
	int64_t count = 0;

	set(g, all, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->ops_count,
	    g->ops);
	set(g, all, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &g->handle);
	finalize(g, all, "the graph");
	set_object(g, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, all);
	set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
	finalize(g, heuristic, "the heuristic");
	for (int i = 0; i < CONFIGS; i++)
		configs[i] = create(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "a configuration");
	if (!*g->why)
		worked(g->api, g->why,
		       g->api->BackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
						   CUDNN_TYPE_BACKEND_DESCRIPTOR, CONFIGS, &count,
						   configs),
		       "asking the heuristic");
	if (!*g->why && count < 1)
		snprintf(g->why, MFK_WHY, "cuDNN %zu: the heuristic knows no engine",
			 g->api->version);
	return *g->why ? 0 : count < CONFIGS ? count : CONFIGS;
}

static cudnnBackendDescriptor_t compile(struct graph *g, cudnnBackendDescriptor_t config, char *why)
{
	const struct cudnn_api *api = g->api;
	cudnnBackendDescriptor_t p = NULL;

	if (worked(api, why,
		   api->BackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &p),
		   "creating a plan") &&
	    worked(api, why,
		   api->BackendSetAttribute(p, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE,
					    1, &g->handle),
		   "setting a plan's handle") &&
	    worked(api, why,
		   api->BackendSetAttribute(p, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
					    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config),
		   "setting a plan's configuration") &&
	    worked(api, why, api->BackendFinalize(p), "finalizing a plan"))
		return p;
	if (p)
		api->BackendDestroyDescriptor(p);
	return NULL;
}

cudnnBackendDescriptor_t graph_compile(struct graph *g, size_t *workspace)
{
	cudnnBackendDescriptor_t configs[CONFIGS], p = NULL;
	int64_t count = configs_of(g, configs), bytes = 0, n = 0;
	char why[MFK_WHY] = "";

	for (int64_t i = 0; i < count && !p; i++)
		p = compile(g, configs[i], why);
	if (!p) {
		if (!*g->why)
			memcpy(g->why, why, MFK_WHY);
		return NULL;
	}
	if (!worked(g->api, g->why,
		    g->api->BackendGetAttribute(p, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
						CUDNN_TYPE_INT64, 1, &n, &bytes),
		    "asking a plan for its workspace")) {
		g->api->BackendDestroyDescriptor(p);
		return NULL;
	}
	*workspace = (size_t)bytes;
	return p;
}

void graph_run(const struct cudnn_api *api, cudnnHandle_t handle, cudaStream_t stream,
	       cudnnBackendDescriptor_t compiled, int count, const int64_t *ids,
	       const void *const *pointers, void *workspace, char *why)
{
	cudnnBackendDescriptor_t pack = NULL;

	(void)(worked(api, why, api->SetStream(handle, stream), "setting the stream") &&
	       worked(api, why,
		      api->BackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack),
		      "creating a pack of pointers") &&
	       worked(api, why,
		      api->BackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
					       CUDNN_TYPE_INT64, count, ids),
		      "setting numbers of tensors") &&
	       worked(api, why,
		      api->BackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
					       CUDNN_TYPE_VOID_PTR, count, pointers),
		      "setting pointers") &&
	       worked(api, why,
		      api->BackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
					       CUDNN_TYPE_VOID_PTR, 1, &workspace),
		      "setting the workspace") &&
	       worked(api, why, api->BackendFinalize(pack), "finalizing a pack of pointers") &&
	       worked(api, why, api->BackendExecute(handle, compiled, pack), "executing"));
	if (pack)
		api->BackendDestroyDescriptor(pack);
}

#else
typedef int mfk_no_cudnn; /* a file is not empty */
#endif
