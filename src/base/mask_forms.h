/* mask_forms: the spellings in which a secret value is looked for. Pure. */
#pragma once

#include "base/mask_trie.h"

/* As it is, its long lines, quoted for JSON and for a shell, percent-encoded: into exact. base64 (at each of the three
 * places a value can have in a longer text) and hexadecimal, which programs break into lines: into wrapped. -E2BIG. */
int mask_forms(struct str value, uint16_t rule, struct trie *exact, struct trie *wrapped);
