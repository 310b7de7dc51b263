// The NPUs as a run would see them: the engine, its library for NPUs, CANN.
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>

#include "base/cpu_class.h"
#include "base/message.h"
#include "doctor/check.h"
#include "doctor/child.h"
#include "doctor/engine.h"
#include "doctor/npu_engine.h"

namespace danlu::doctor {
namespace {

bool may_see_npus(const SystemRoots& roots) {
  for (const char* name : {"DANLU_NPU_LIBRARY", "ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"}) {
    if (!roots.variable(name).empty()) return true;
  }
  std::error_code none;
  return fs::exists(roots.ascend / "ascend-toolkit/latest", none) ||
         fs::exists(roots.ascend / "cann", none);
}

void* opened(const fs::path& library, int flags) {
  void* const handle = ::dlopen(library.c_str(), flags);
  const char* const why = handle ? nullptr : ::dlerror();
  if (!handle) throw std::runtime_error(why ? why : "?");
  return handle;
}

std::string describe_npus_in_child(const fs::path& engine) {
  opened(engine, RTLD_NOW | RTLD_GLOBAL);
  void* const library = opened(engine.parent_path() / "libdanlu_npu.so", RTLD_NOW | RTLD_LOCAL);
  void* const symbol = ::dlsym(library, "danlu_npu_describe");
  if (!symbol) throw std::runtime_error("danlu_npu_describe?");
  return reinterpret_cast<const char* (*)()>(symbol)();
}

}  // namespace

NpuEngineAnswer parse_npu_engine(const std::string& text) {
  NpuEngineAnswer answer{.was_asked = true};
  for (const std::string& line : lines_of(text)) {
    const size_t tab = line.find('\t');
    if (tab == std::string::npos) continue;
    const std::string word = line.substr(0, tab), rest = line.substr(tab + 1);
    if (word == "card") answer.cards.push_back(rest);
    if (word == "simulator") answer.simulator = rest;
    if (word == "refused") answer.refused = rest;
    if (word == "absent") answer.absent.push_back(rest);
    if (word == "failure") answer.why_not = rest;
  }
  return answer;
}

NpuEngineAnswer ask_npu_engine(const SystemRoots& roots) {
  std::error_code none;
  if (roots.engine.empty() || !fs::exists(roots.engine, none) || !may_see_npus(roots)) return {};
  const ChildResult result = ask_child(
      [&] {
        constrain_libraries();
        return describe_npus_in_child(roots.engine);
      },
      kEngineTimeoutS);
  if (result.succeeded()) return parse_npu_engine(result.out);
  return {
      .was_asked = true,
      .why_not = result.exit_code == 1 ? result.out : describe_failure(result, kEngineTimeoutS)};
}

Finding check_npu_engine(const SystemRoots& roots) {
  const NpuEngineAnswer answer = ask_npu_engine(roots);
  if (!answer.was_asked) return Finding::not_here(tr("no CANN that --device npu could open"));
  if (!answer.why_not.empty()) {
    return {Verdict::kFailed, answer.why_not,
            tr("source CANN's set_env.sh; danlu doctor --only npu,driver,cann says more")};
  }
  Finding finding;
  finding.read = tr("{} NPUs", answer.cards.size());
  for (const std::string& card : answer.cards) finding.add(Verdict::kOk, card);
  if (answer.simulator.empty()) {
    finding.add(Verdict::kWarning, tr("--device npu was run on a simulator only, never on a card"),
                tr("compare a short run with --device cpu first"));
  } else {
    finding.add(Verdict::kWarning, answer.simulator,
                tr("results are computed on the CPU: unset DANLU_NPU_LIBRARY for cards"));
  }
  if (answer.cards.empty()) finding.add(Verdict::kFailed, tr("CANN is there and sees no card"));
  if (!answer.refused.empty()) {
    finding.add(Verdict::kFailed, answer.refused, tr("--device cpu computes without an NPU"));
  } else if (!answer.absent.empty()) {
    finding.add(
        Verdict::kWarning,
        tr("operators that are not there: {}", fmt::format("{}", fmt::join(answer.absent, " "))),
        tr("what needs them is refused by name; a newer CANN may have them"));
  }
  return finding;
}

}  // namespace danlu::doctor
