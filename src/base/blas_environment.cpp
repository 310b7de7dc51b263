#include "base/blas_environment.h"

#include <cstdlib>

namespace danlu {

bool choose_blas_kernels() {
#if defined(__x86_64__) && defined(__GNUC__)
  constexpr const char* kVariable = "OPENBLAS_CORETYPE";
  __builtin_cpu_init();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  // Intel's are recognised, and have better names in newer releases than one chosen here.
  if (!__builtin_cpu_is("amd") || !avx512 || std::getenv(kVariable)) return false;
  return ::setenv(kVariable, "SkylakeX", /*overwrite=*/0) == 0;
#else
  return false;
#endif
}

}  // namespace danlu
