#include <dlfcn.h>
#include <fmt/format.h>

#include "base/error.h"
#include "base/own_library.h"
#include "text/sentencepiece/model.h"

namespace danlu::text {
namespace {

using Factory = SentencePieceModel* (*)(const char*, size_t, std::string*);

#ifdef __SANITIZE_ADDRESS__
constexpr int kOwnSymbols = 0;  // the sanitizer's runtime refuses RTLD_DEEPBIND
#else
constexpr int kOwnSymbols = RTLD_DEEPBIND;
#endif

Factory open_plugin() {
  const auto path = own_library("libdanlu_sentencepiece.so");
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | kOwnSymbols);
  void* factory = library ? ::dlsym(library, "danlu_sentencepiece_model") : nullptr;
  if (!factory) {
    const char* why = ::dlerror();
    throw ModelError(tr("[sentencepiece] cannot open {}: {}", path.string(), why ? why : "unknown"),
                     tr("`make deps build` installs libsentencepiece and builds the plug-in"));
  }
  return reinterpret_cast<Factory>(factory);
}

}  // namespace

std::unique_ptr<const SentencePieceModel> open_sentencepiece(std::string_view serialized,
                                                             std::string* error) {
  static const Factory factory = open_plugin();
  return std::unique_ptr<const SentencePieceModel>(
      factory(serialized.data(), serialized.size(), error));
}

}  // namespace danlu::text
