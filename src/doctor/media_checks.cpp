// What decodes pictures and videos: libraries that are opened when a row has some.
#include <dlfcn.h>

#include <stdexcept>

#include "base/message.h"
#include "doctor/check.h"
#include "doctor/child.h"

namespace danlu::doctor {
namespace {

constexpr double kMediaTimeoutS = 20;

/// In a child: they bring a hundred others.
std::string why_not_opened(const fs::path& library) {
  const ChildResult result = ask_child(
      [&]() -> std::string {
        if (::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL)) return "";
        const char* why = ::dlerror();
        throw std::runtime_error(why ? why : "?");
      },
      kMediaTimeoutS);
  if (result.succeeded()) return "";
  return result.exit_code == 1 ? result.out : describe_failure(result, kMediaTimeoutS);
}

}  // namespace

Finding check_media(const SystemRoots& roots) {
  struct Decoder {
    const char *library, *opened, *needs;
  };
  static constexpr Decoder kDecoders[] = {
      {"libdanlu_stills.so", "pictures can be read",
       "libjpeg, libpng, libwebp, libwebpdemux, libgif"},
      {"libdanlu_video.so", "videos can be read", "libavformat, libavcodec, libswscale"}};
  Finding finding;
  for (const auto& [library, opened, needs] : kDecoders) {
    const fs::path path = roots.engine.parent_path() / library;
    std::error_code none;
    if (!fs::exists(path, none)) {
      finding.add(Verdict::kWarning, tr("{} is not there", path.string()),
                  tr("install {}; in a build tree, `make deps build`", needs));
    } else if (const std::string why = why_not_opened(path); !why.empty()) {
      finding.add(Verdict::kWarning, tr("{}: cannot be loaded: {}", path.string(), why),
                  tr("install {}; in a build tree, `make deps build`", needs));
    } else {
      finding.add(Verdict::kOk, std::string(translated(opened)));
    }
  }
  return finding;
}

}  // namespace danlu::doctor
