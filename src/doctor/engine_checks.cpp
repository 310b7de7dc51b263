// The tensor engine and the libtorch that it is linked with.
#include <dlfcn.h>
#include <fmt/format.h>

#include <stdexcept>

#include "base/cpu_class.h"
#include "base/message.h"
#include "doctor/check.h"
#include "doctor/child.h"
#include "doctor/engine.h"

namespace danlu::doctor {
namespace {

/// In a child: 300 libraries stay out of this process, and one that kills it is seen.
std::string describe_in_child(const fs::path& engine) {
  void* library = ::dlopen(engine.c_str(), RTLD_NOW | RTLD_GLOBAL);
  const char* why = library ? nullptr : ::dlerror();
  if (!library) throw std::runtime_error(why ? why : "?");
  void* symbol = ::dlsym(library, "danlu_engine_describe");
  if (!symbol) throw std::runtime_error("danlu_engine_describe?");
  return reinterpret_cast<const char* (*)()>(symbol)();
}

/// What follows "NAME=" up to the next comma.
std::string setting_in(const std::string& config, const std::string& name) {
  const size_t at = config.find(name + "=");
  if (at == config.npos) return "";
  const size_t begin = at + name.size() + 1;
  return trimmed(config.substr(begin, config.find_first_of(",\n", begin) - begin));
}

std::string word_after(const std::string& config, const std::string& key) {
  const size_t at = config.find(key);
  if (at == config.npos) return "";
  const auto words = words_of(std::string_view(config).substr(at + key.size(), 40));
  std::string word = words.empty() ? "" : words.front();
  if (word.ends_with(',')) word.pop_back();
  return word;
}

}  // namespace

LibtorchBuild parse_torch_config(const std::string& config) {
  LibtorchBuild build;
  build.version = setting_in(config, "TORCH_VERSION");
  build.blas = setting_in(config, "BLAS_INFO");
  const std::string uses_cuda = setting_in(config, "USE_CUDA");
  build.has_cuda = uses_cuda == "ON" || uses_cuda == "1";
  build.cuda_runtime = word_after(config, "CUDA Runtime");
  build.capability = word_after(config, "CPU capability usage:");
  if (build.capability == "NO") build.capability.clear();  // "NO AVX", which Arm has in any case
  return build;
}

EngineAnswer ask_engine(const SystemRoots& roots) {
  EngineAnswer answer;
  std::error_code none;
  if (roots.engine.empty() || !fs::exists(roots.engine, none)) return answer;
  answer.is_there = true;
  const ChildResult result = ask_child(
      [&] {
        constrain_libraries();
        return describe_in_child(roots.engine);
      },
      kEngineTimeoutS);
  if (result.succeeded()) {
    answer.build = parse_torch_config(result.out);
  } else if (result.exit_code == 1) {
    answer.why_not = result.out;
  } else {
    answer.why_not = describe_failure(result, kEngineTimeoutS);
  }
  return answer;
}

Finding check_libtorch(const SystemRoots& roots) {
  const EngineAnswer answer = ask_engine(roots);
  if (!answer.is_there) {
    return {Verdict::kFailed, tr("{} is not there", roots.engine.string()),
            tr("build it with libtorch installed: make deps build; without it only commands "
               "without tensors work")};
  }
  if (!answer.build) {
    return {Verdict::kFailed, tr("{}: cannot be loaded: {}", roots.engine.string(), answer.why_not),
            tr("install the library that is named there; from a checkout: make deps build")};
  }
  const LibtorchBuild& build = *answer.build;
  std::string read = tr("the engine opens; libtorch {}", build.version);
  read += build.has_cuda ? tr(", built for CUDA {}", build.cuda_runtime) : tr(", built for CPUs");
  if (!build.capability.empty()) read += ", " + build.capability;
  if (!build.blas.empty() && build.blas != "generic") read += tr(", products by {}", build.blas);
  return {Verdict::kOk, read, ""};
}

}  // namespace danlu::doctor
