#include "base/own_library.h"

#include <dlfcn.h>

namespace danlu {

std::filesystem::path own_library(const std::string& file) {
  Dl_info info{};
  if (!::dladdr(reinterpret_cast<void*>(&own_library), &info) || !info.dli_fname) return file;
  std::error_code ignored;
  return std::filesystem::weakly_canonical(info.dli_fname, ignored).parent_path() / file;
}

}  // namespace danlu
