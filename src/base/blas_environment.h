// base/blas_environment.h: settings a BLAS reads from the environment when it is loaded.
#pragma once

namespace danlu {

/// OpenBLAS up to 0.3.21 does not know AMD processors with AVX-512 and gives them kernels of half
/// the speed: names the right ones in OPENBLAS_CORETYPE. A value the user has set stays. Call it
/// before libtorch is loaded. Returns true if the environment was changed.
bool choose_blas_kernels();

}  // namespace danlu
