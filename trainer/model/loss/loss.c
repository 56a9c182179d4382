#include "trainer/model/loss/loss.h"

#define DECLARE(name) extern const struct mft_loss_kind mft_loss_##name;
MFT_LOSSES(DECLARE, MFT_LOSSES_NOT)
#undef DECLARE

const struct mft_loss_kind *mft_loss_kind(const struct mft_train_config *c)
{
	static const struct mft_loss_kind *const kinds[] = {
#define KIND(name) &mft_loss_##name,
		MFT_LOSSES(KIND, MFT_LOSSES_NOT)
#undef KIND
	};
	size_t i = 0;

	while (kinds[i]->takes && !kinds[i]->takes(c))
		i++;
	return kinds[i];
}

unsigned mft_loss_term_count(const struct mft_loss_kind *kind)
{
	unsigned count = 0;

	while (count < MFT_LOSS_TERMS && kind->terms[count])
		count++;
	return count;
}
