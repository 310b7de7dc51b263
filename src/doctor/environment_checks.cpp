// Variables that change what runs do.
#include <fmt/format.h>

#include <algorithm>

#include "base/lower_case.h"
#include "base/message.h"
#include "doctor/check.h"

namespace danlu::doctor {
namespace {

bool is_on(const std::string& value) {
  const std::string lower = lower_case(value);
  return !lower.empty() && lower != "0" && lower != "false" && lower != "no" && lower != "off";
}

std::string locale_in_force(const SystemRoots& roots) {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (const std::string value = roots.variable(name); !value.empty()) return value;
  }
  return "";
}

void look_at_locale(const SystemRoots& roots, Finding& finding) {
  const std::string locale = locale_in_force(roots);
  const std::string lower = lower_case(locale);
  const bool is_utf8 = lower.find("utf-8") != lower.npos || lower.find("utf8") != lower.npos;
  if (locale.empty() || lower == "c" || lower == "posix") {
    finding.add(Verdict::kOk, tr("locale {}: texts are UTF-8 all the same",
                                 locale.empty() ? std::string("C") : locale));
  } else if (is_utf8) {
    finding.add(Verdict::kOk, tr("locale {}", locale));
  } else {
    finding.add(Verdict::kWarning, tr("locale {}: Danlu writes UTF-8", locale),
                tr("export LC_ALL=C.UTF-8, or one of `locale -a` that ends in UTF-8"));
  }
}

void look_at_hubs(const SystemRoots& roots, Finding& finding) {
  const bool offline = is_on(roots.variable("HF_HUB_OFFLINE"));
  const std::string endpoint = roots.variable("HF_ENDPOINT");
  if (offline && !endpoint.empty()) {
    finding.add(Verdict::kWarning, tr("HF_HUB_OFFLINE and HF_ENDPOINT={} contradict", endpoint),
                tr("unset one of them"));
  }
  if (!endpoint.empty() && !endpoint.starts_with("http://") && !endpoint.starts_with("https://")) {
    finding.add(Verdict::kWarning, tr("HF_ENDPOINT={} is no address", endpoint),
                tr("it begins with https://"));
  }
  for (const char* name : {"HF_HOME", "HF_HUB_CACHE", "MODELSCOPE_CACHE", "DANLU_CACHE"}) {
    const std::string value = roots.variable(name);
    std::error_code none;
    if (value.empty()) continue;
    if (fs::exists(value, none) && !fs::is_directory(value, none)) {
      finding.add(Verdict::kFailed, tr("{}={} is no directory", name, value),
                  tr("name a directory, or unset it"));
    } else {
      finding.add(Verdict::kOk, fmt::format("{}={}", name, value));
    }
  }
}

void look_at_allocator(const SystemRoots& roots, Finding& finding) {
  const std::string value = roots.variable("PYTORCH_NPU_ALLOC_CONF");
  if (value.empty()) return;
  const std::string lower = lower_case(value);
  const bool expands = lower.find("expandable_segments:true") != lower.npos;
  const bool splits = lower.find("max_split_size_mb") != lower.npos ||
                      lower.find("garbage_collection_threshold") != lower.npos;
  if (expands && splits) {
    finding.add(Verdict::kWarning, tr("PYTORCH_NPU_ALLOC_CONF={} contradicts itself", value),
                tr("expandable_segments excludes max_split_size_mb and "
                   "garbage_collection_threshold"));
  } else {
    finding.add(Verdict::kOk, fmt::format("PYTORCH_NPU_ALLOC_CONF={}", value));
  }
}

}  // namespace

Finding check_environment(const SystemRoots& roots) {
  Finding finding;
  look_at_locale(roots, finding);
  look_at_hubs(roots, finding);
  look_at_allocator(roots, finding);
  return finding;
}

}  // namespace danlu::doctor
