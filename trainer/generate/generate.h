/*
 * The sampler that is built in: the model goes on with sequences, token after token, with the
 * weights that training updates.
 *
 * A second net has the same parameters (trainer/model/cached.c). Its step is a fixed number of
 * tokens: the next one of each sequence that is being generated, and as many of prompts as there is
 * room for. A sequence that ends gives its place to the next request.
 *
 * A token of a request is a function of the weights, the request and what is asked of it alone:
 * neither the number of places nor the order nor the other requests change it. Random numbers are
 * of the request's seed and the token's position. On the CPU logits have the same bits in whatever
 * company (struct mfk_gemm: alike). On a GPU products of another number of rows may differ in the
 * last bits: the shape of a step, and the rows of experts, follow from the number of places and
 * from the others.
 */
#ifndef MFT_TRAINER_GENERATE_GENERATE_H
#define MFT_TRAINER_GENERATE_GENERATE_H

#include "formats/base/error.h"
#include "kernels/kernels.h"
#include "trainer/config/config.h"
#include "trainer/generate/response.h"
#include "trainer/parallel/parallel.h"
#include "trainer/params/params.h"

struct mft_sampler;

/* slots: sequences at a time, at most; max_length: tokens of one, with its prompt. Has memory of
 * its own for activations and the cache; borrows the rest, and samples with the weights that params
 * have when it runs: they must be whole then. -ENOTSUP: a model or a layout that does not generate
 * here, by name. */
int mft_sampler_new(const struct mft_train_config *config, struct mft_params *params,
		    const struct mfk_backend *backend, struct mfk_device *device,
		    const struct mft_parallel *parallel, uint32_t slots, uint32_t max_length,
		    struct mft_sampler **ret, struct mfs_error *err);
void mft_sampler_free(struct mft_sampler *s);
/* The bytes of the device that such a sampler would take, without one. */
int mft_sampler_plan(const struct mft_train_config *config, struct mft_params *params,
		     const struct mft_parallel *parallel, uint32_t slots, uint32_t max_length,
		     uint64_t *ret, struct mfs_error *err);

/* What responses have as versions from now on; 0 at first. */
void mft_sampler_set_version(struct mft_sampler *s, uint64_t version);

/* Called after each token: of response `number`, whose last token is new. NULL: nobody is told. */
typedef void mft_sampler_told(void *arg, size_t number, const struct mft_response *so_far);
void mft_sampler_tell(struct mft_sampler *s, mft_sampler_told *told, void *arg);

/* Whether what runs is to end: asked before each step, by processes that share the model now and
 * then. NULL: it does not. */
typedef bool mft_sampler_stop(void);
void mft_sampler_stop_on(struct mft_sampler *s, mft_sampler_stop *stop);

/*
 * ret[count]: a response to each request, in their order; on failure none. A response ends before
 * max_tokens where its sequence has max_length, and where it was to stop. -EINVAL: a prompt is
 * empty or too long, or has a token that the model has not. -EDOM: logits are not finite.
 *
 * Tensor parallel processes run the same requests, and get the same tokens. Others have their own;
 * but where experts are divided all processes call it, be it with no request.
 */
int mft_sampler_run(struct mft_sampler *s, struct mfk_ctx *ctx, const struct mft_request *requests,
		    size_t count, const struct mft_sampling *how, struct mft_response *ret,
		    struct mfs_error *err);

#endif
