// Processors: what they can do, how many of them, and threads.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/cpu_class.h"
#include "base/message.h"
#include "base/processor_name.h"
#include "base/threads.h"
#include "doctor/check.h"

namespace danlu::doctor {
namespace {

/// The features in /proc/cpuinfo that Danlu or the libraries under it have kernels for.
std::vector<std::string> vector_features(const std::string& cpuinfo) {
  const auto listed = value_of(cpuinfo, "flags");
  const auto words = words_of(listed ? *listed : value_of(cpuinfo, "Features").value_or(""));
  const std::set<std::string> present(words.begin(), words.end());
  std::vector<std::string> found;
  for (const char* name :
       {"avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "asimddp", "sve", "bf16"}) {
    if (present.count(name)) found.emplace_back(name);
  }
  return found;
}

/// Nothing where the driver itself picks the speed under that name.
std::optional<std::string> governor_of(const SystemRoots& roots) {
  const fs::path cpufreq = roots.sys / "devices/system/cpu/cpu0/cpufreq";
  const std::string driver = line_in(cpufreq / "scaling_driver").value_or("");
  if (driver.starts_with("intel_pstate") || driver.starts_with("amd-pstate-epp"))
    return std::nullopt;
  return line_in(cpufreq / "scaling_governor");
}

}  // namespace

Finding check_cpu(const SystemRoots& roots) {
  const std::string cpuinfo = text_in(roots.proc / "cpuinfo").value_or("");
  if (cpuinfo.empty()) {
    return {Verdict::kWarning, tr("{} cannot be read", (roots.proc / "cpuinfo").string()),
            tr("mount /proc in the container")};
  }
  const std::string model = processor_name(cpuinfo);
  const auto features = vector_features(cpuinfo);
  Finding finding;
  finding.read =
      tr("{}; vector instructions: {}", model.empty() ? std::string("?") : model,
         features.empty() ? std::string("-") : fmt::format("{}", fmt::join(features, " ")));
  const bool is_x86 = value_of(cpuinfo, "flags").has_value();
  if (is_x86 && std::find(features.begin(), features.end(), "avx2") == features.end()) {
    finding.add(Verdict::kWarning, tr("no AVX2"),
                tr("it works, several times slower than a processor since 2013"));
  }
  finding.add(Verdict::kOk, tr("used: {}", describe_cpu_class()));
  if (const auto governor = governor_of(roots)) {
    const bool is_slow = *governor == "powersave" || *governor == "conservative";
    finding.add(is_slow ? Verdict::kWarning : Verdict::kOk, tr("governor {}", *governor),
                is_slow ? tr("cpupower frequency-set -g performance") : std::string());
  }
  return finding;
}

Finding check_quota(const SystemRoots& roots) {
  const std::vector<int> allowed = allowed_processors(roots);
  if (allowed.empty()) {
    return {Verdict::kWarning,
            tr("{} does not say which processors this process may use",
               (roots.proc / "self/status").string()),
            tr("mount /proc in the container")};
  }
  const size_t quota = cpu_quota(roots.control_group());
  const size_t usable = quota > 0 ? std::min(quota, allowed.size()) : allowed.size();
  Finding finding;
  finding.read = tr("may run on {} processors ({})", allowed.size(), processor_list(allowed));
  if (quota > 0) finding.read += "; " + tr("the control group grants the time of {}", quota);
  const std::string set = roots.variable("OMP_NUM_THREADS");
  if (set.empty()) {
    finding.add(Verdict::kOk, tr("a run takes {} threads", usable));
    return finding;
  }
  const auto threads = first_thread_count(set);
  const std::string unset = tr("unset it: danlu then takes one thread a processor core");
  if (!threads) {
    finding.add(Verdict::kFailed, tr("OMP_NUM_THREADS={} is no number of threads", set), unset);
  } else if (*threads > most_threads(usable)) {
    finding.add(Verdict::kFailed,
                tr("OMP_NUM_THREADS={} is more than the {} threads that {} processors may have",
                   set, most_threads(usable), usable),
                unset);
  } else if (*threads > usable) {
    finding.add(Verdict::kWarning,
                tr("OMP_NUM_THREADS={} is more than the {} processors there are", set, usable),
                unset);
  } else {
    finding.add(Verdict::kOk, tr("a run takes {} threads (OMP_NUM_THREADS)", *threads));
  }
  return finding;
}

}  // namespace danlu::doctor
