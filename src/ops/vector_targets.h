// ops/vector_targets.h: which of Highway's instruction sets the kernels are compiled for: all but
// SVE. Its vectors have no size that compilers know, so there are no arrays of them, which blocks
// of sums are: Arm computes with NEON. Before Highway's own headers.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
