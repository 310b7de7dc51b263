#include "hub/transport.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstring>

#include "base/error.h"
#include "base/own_library.h"

namespace danlu::hub {
namespace {

void* open_plugin() {
  const auto path = own_library("libdanlu_curl.so");
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* why = ::dlerror();
    throw DeviceError(tr("[download] cannot open {}: {}", path.string(), why ? why : "unknown"),
                      tr("`make deps build` installs libcurl and builds the plug-in"));
  }
  return library;
}

template <typename Function>
Function from_plugin(const char* name) {
  static void* const library = open_plugin();
  void* symbol = ::dlsym(library, name);
  if (!symbol) throw InternalError(fmt::format("[download] the plug-in lacks {}", name));
  return reinterpret_cast<Function>(symbol);
}

}  // namespace

std::unique_ptr<Transport> make_transport() {
  static const auto make = from_plugin<Transport* (*)()>("danlu_curl_transport");
  return std::unique_ptr<Transport>(make());
}

std::unique_ptr<Digest> make_digest(const char* name) {
  static const auto make = from_plugin<Digest* (*)(const char*)>("danlu_curl_digest");
  return std::unique_ptr<Digest>(make(name));
}

std::string url_encoded(std::string_view text, bool keep_slashes) {
  std::string out;
  for (const char byte : text) {
    const bool plain = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
                       (byte >= '0' && byte <= '9') || std::strchr("-._~", byte) != nullptr;
    if ((plain && byte != '\0') || (byte == '/' && keep_slashes)) {
      out += byte;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(byte));
    }
  }
  return out;
}

}  // namespace danlu::hub
