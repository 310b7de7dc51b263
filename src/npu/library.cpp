#include "npu/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/error.h"

namespace danlu::npu {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> parts_between_colons(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(':', at), text.size());
    if (end > at) parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

/// Where libraries may lie, the first wins; an empty path: as the loader finds them.
std::vector<fs::path> library_folders() {
  if (const std::string own = environment_variable("DANLU_NPU_LIBRARY"); !own.empty()) return {own};
  std::vector<fs::path> folders = {{}};
  for (const char* name : {"ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"}) {
    if (const std::string value = environment_variable(name); !value.empty())
      folders.push_back(fs::path(value) / "lib64");
  }
  for (const char* usual : {"/usr/local/Ascend/ascend-toolkit/latest", "/usr/local/Ascend/cann"})
    folders.push_back(fs::path(usual) / "lib64");
  return folders;
}

/// Null where none opens; `why` says what the loader said last of a file that is there, or at all.
void* open_first(const std::vector<std::string>& names, int flags, std::string& why) {
  for (const fs::path& folder : library_folders()) {
    std::error_code none;
    const bool is_one_file = fs::is_regular_file(folder, none);
    for (const std::string& name : names) {
      const fs::path path = is_one_file ? folder : folder.empty() ? fs::path(name) : folder / name;
      const bool is_there = !folder.empty() && fs::exists(path, none);
      if (!folder.empty() && !is_there) continue;
      if (void* const library = ::dlopen(path.c_str(), flags)) return library;
      const char* const said = ::dlerror();
      if (is_there || why.empty()) why = said ? said : path.string();
    }
  }
  return nullptr;
}

std::string env_script() {
  const std::string home = environment_variable("ASCEND_HOME_PATH");
  return (home.empty() ? std::string("/usr/local/Ascend/ascend-toolkit") : home) + "/set_env.sh";
}

void* open_required(const std::vector<std::string>& names) {
  std::string why;
  void* const library = open_first(names, RTLD_NOW | RTLD_GLOBAL, why);
  if (!library) {
    const std::string named = environment_variable("DANLU_NPU_LIBRARY");
    if (!named.empty() && why.empty()) {
      throw DeviceError(tr("[npu] DANLU_NPU_LIBRARY: {} has no {}", named, names.front()),
                        tr("name the folder of CANN's libraries, or unset it"));
    }
    throw DeviceError(tr("[npu] cannot open CANN's {}: {}", names.front(), why),
                      tr("source {} before danlu, or name the folder of CANN's libraries in "
                         "DANLU_NPU_LIBRARY",
                         env_script()));
  }
  return library;
}

/// CANN's libraries. libascendcl.so has all of AscendCL, or forwards to libacl_rt.so, which may
/// also be there alone.
struct Libraries {
  std::vector<void*> runtime, meta;

  Libraries() {
    runtime.push_back(open_required({"libascendcl.so", "libacl_rt.so"}));
    std::string unused;
    if (void* const more = open_first({"libacl_rt.so"}, RTLD_NOW | RTLD_GLOBAL, unused))
      runtime.push_back(more);
    meta.push_back(open_required({"libnnopbase.so"}));
  }
};

void* symbol_in(const std::vector<void*>& libraries, const char* name) {
  for (void* const library : libraries) {
    if (void* const symbol = ::dlsym(library, name)) return symbol;
  }
  return nullptr;
}

template <typename Function>
void find_function(Function& function, const std::vector<void*>& libraries, const char* name,
                   bool is_required) {
  function = reinterpret_cast<Function>(symbol_in(libraries, name));
  if (!function && is_required) required_symbol(libraries.front(), name);
}

Acl opened() {
  const Libraries libraries;
  Acl api;
#define DANLU_FILL_REQUIRED(name, result, arguments) \
  find_function(api.name, libraries.runtime, #name, true);
#define DANLU_FILL_OPTIONAL(name, result, arguments) \
  find_function(api.name, libraries.runtime, #name, false);
#define DANLU_FILL_META(name, result, arguments) \
  find_function(api.name, libraries.meta, #name, true);
  DANLU_ACL_REQUIRED(DANLU_FILL_REQUIRED)
  DANLU_ACL_OPTIONAL(DANLU_FILL_OPTIONAL)
  DANLU_ACL_META(DANLU_FILL_META)
#define DANLU_FILL_META_OPTIONAL(name, result, arguments) \
  find_function(api.name, libraries.meta, #name, false);
  DANLU_ACL_META_OPTIONAL(DANLU_FILL_META_OPTIONAL)
#undef DANLU_FILL_META_OPTIONAL
#undef DANLU_FILL_REQUIRED
#undef DANLU_FILL_OPTIONAL
#undef DANLU_FILL_META
  return api;
}

/// libcust_opapi.so of the folders that hold operators which are not CANN's own.
std::vector<fs::path> custom_libraries() {
  std::vector<fs::path> found;
  const fs::path inside = "op_api/lib/libcust_opapi.so";
  for (const std::string& folder :
       parts_between_colons(environment_variable("ASCEND_CUSTOM_OPP_PATH")))
    found.push_back(fs::path(folder) / inside);
  const fs::path vendors = fs::path(environment_variable("ASCEND_OPP_PATH")) / "vendors";
  std::ifstream config(vendors / "config.ini");
  for (std::string line; std::getline(config, line);) {
    const size_t at = line.find('=');
    if (line.rfind("load_priority", 0) != 0 || at == std::string::npos) continue;
    std::string names = line.substr(at + 1);
    for (char& c : names) c = c == ',' ? ':' : c;
    for (const std::string& name : parts_between_colons(names))
      found.push_back(vendors / name / inside);
  }
  return found;
}

std::vector<fs::path> split_libraries() {
  for (const fs::path& folder : library_folders()) {
    std::error_code none;
    std::vector<fs::path> found;
    if (folder.empty()) continue;
    for (const auto& entry : fs::directory_iterator(folder, none)) {
      const std::string name = entry.path().filename();
      if (name.rfind("libopapi_", 0) == 0 && name.ends_with(".so")) found.push_back(entry.path());
    }
    if (!found.empty()) return found;
    if (fs::exists(folder / "libopapi.so", none)) return {};
  }
  return {};
}

std::vector<void*> open_operators() {
  std::vector<void*> libraries;
  const auto open = [&](const fs::path& path) {
    std::error_code none;
    if (!fs::exists(path, none)) return;
    if (void* const library = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL))
      libraries.push_back(library);
  };
  for (const fs::path& path : custom_libraries()) open(path);
  const size_t num_custom = libraries.size();
  for (const fs::path& path : split_libraries()) open(path);
  if (libraries.size() > num_custom) return libraries;
  std::string why;
  if (void* const all = open_first({"libopapi.so"}, RTLD_LAZY | RTLD_LOCAL, why)) {
    libraries.push_back(all);
    return libraries;
  }
  throw DeviceError(tr("[npu] cannot open CANN's {}: {}", "libopapi.so", why),
                    tr("install CANN's package of operators for this chip"));
}

}  // namespace

const Acl& acl() {
  // Never closed: the registrations with libtorch and tensors that live as long as the process
  // call it.
  static const Acl* const api = new Acl(opened());
  return *api;
}

bool cann_is_here() {
  std::error_code none;
  for (const fs::path& folder : library_folders()) {
    if (!folder.empty() && fs::exists(folder, none)) return true;
  }
  return ::dlopen("libascendcl.so", RTLD_NOW | RTLD_GLOBAL) != nullptr;
}

void* operator_symbol(const char* name) {
  static const auto* const libraries = new std::vector<void*>(open_operators());
  return symbol_in(*libraries, name);
}

void* hccl_library() {
  static void* const library = open_required({"libhccl.so"});
  return library;
}

void* required_symbol(void* library, const char* name) {
  if (void* const symbol = ::dlsym(library, name)) return symbol;
  throw DeviceError(tr("[npu] this CANN has no {}", name), tr("CANN 8.0 or newer is needed"));
}

const std::string& simulator_version() {
  static const std::string version =
      acl().danlu_npu_simulator_version ? acl().danlu_npu_simulator_version() : "";
  return version;
}

}  // namespace danlu::npu
