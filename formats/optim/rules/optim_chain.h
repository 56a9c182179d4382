/*
 * Which optimizer of a chain has a parameter. Routed experts have one of their own in some layouts,
 * and in a run with Muon what it does not take has one of its own:
 *
 *   dense [, experts]
 *   matrices [, matrices of experts], others [, others of experts]
 *
 * Sources: megatron/core/optimizer/__init__.py: get_megatron_optimizer,
 * _get_megatron_emerging_optimizer; muon.py until core 0.18.
 */
#ifndef MFS_OPTIM_RULES_OPTIM_CHAIN_H
#define MFS_OPTIM_RULES_OPTIM_CHAIN_H

#include <stdbool.h>
#include <stdint.h>

/* Optimizers of a chain, at most. */
#define MFS_OPTIM_CHAIN 4

struct mfs_optim_chain {
	uint32_t count; /* 1 to MFS_OPTIM_CHAIN */
	bool muon;	/* others than matrices are apart */
	bool apart;	/* experts are apart */
};

/* expert_vectors: experts have parameters that Muon does not take, such as biases. */
static inline struct mfs_optim_chain mfs_optim_chain_of(bool muon, bool apart, bool expert_vectors)
{
	const uint32_t others = muon ? 1 + (apart && expert_vectors) : 0;

	return (struct mfs_optim_chain){.count = 1 + apart + others, .muon = muon, .apart = apart};
}

/* The chain of a file that has so many optimizers. */
static inline struct mfs_optim_chain mfs_optim_chain_counted(bool muon, uint32_t count)
{
	return (struct mfs_optim_chain){.count = count, .muon = muon, .apart = count > 1u + muon};
}

/* The number of the optimizer of a parameter. matrix: Muon takes it. */
static inline uint32_t mfs_optim_link(const struct mfs_optim_chain *c, bool matrix, bool expert)
{
	const uint32_t others = 1 + c->apart;

	if (!c->muon || matrix)
		return c->apart && expert;
	return others + (expert && c->count > others + 1);
}

/* True if the i-th has matrices alone. */
static inline bool mfs_optim_link_is_muon(const struct mfs_optim_chain *c, uint32_t i)
{
	return c->muon && i <= c->apart;
}

/* True if the i-th has parameters of experts alone. */
static inline bool mfs_optim_link_is_expert(const struct mfs_optim_chain *c, uint32_t i)
{
	return c->apart && (i == 1 || i == 3);
}

#endif
