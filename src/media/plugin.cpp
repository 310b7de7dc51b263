#include "media/plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/error.h"
#include "base/own_library.h"

namespace danlu::media {

void* from_media_plugin(const char* library, const char* symbol, const char* libraries) {
  const auto path = own_library(library);
  void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* why = ::dlerror();
    throw DeviceError(tr("[media] cannot open {}: {}", path.string(), why ? why : "unknown"),
                      tr("install {}; in a build tree, `make deps build`", libraries));
  }
  void* const found = ::dlsym(handle, symbol);
  if (!found) throw InternalError(fmt::format("[media] {} lacks {}", library, symbol));
  return found;
}

}  // namespace danlu::media
