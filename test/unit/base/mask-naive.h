/*
 * mask-naive: masking as one would write it without a thought for time: every pattern is compared at every place. It
 * knows the patterns themselves (it asks base/mask_forms.h for them), so it judges the search, not the spellings.
 */
#pragma once

#include "base/mask.h"

/* Appends what mask_text(…, 0, …) must say. */
void naive_mask(const struct mask_value *values, size_t n, struct str text, struct buf *out);
