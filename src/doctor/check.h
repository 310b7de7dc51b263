// doctor/check.h: what is examined of a machine, and what was found.
#pragma once
#include <string>
#include <vector>

#include "doctor/system.h"

namespace danlu::doctor {

enum class Verdict {
  kOk,
  kWarning,  ///< works, or may: something to know
  kFailed,   ///< what is there cannot be used as it is
  kNotHere,  ///< nothing of the kind on this machine, or nobody asked for it
};

struct Finding {
  Verdict verdict = Verdict::kOk;
  std::string read;    ///< what was read, in the language of the terminal
  std::string remedy;  ///< what to do; empty where there is nothing to do

  /// The worse of both verdicts, and both remedies: for a check that looks at several things.
  void add(Verdict other, const std::string& also_read, const std::string& also_do = "");
  /// Where nothing of that was found.
  static Finding not_here(std::string why);
};

struct Check {
  const char* name;  ///< as `danlu doctor --only` takes it
  Finding (*run)(const SystemRoots& roots);
};

/// The explicit list, in the order of the output.
const std::vector<Check>& checks();

/// What one run of a check says, whatever happens in it.
struct Result {
  std::string name;
  Finding finding;
};
/// Makes the checks that `only` names, all if it is empty. Errors: UsageError for a name that is
/// none.
std::vector<Result> examine(const SystemRoots& roots, const std::vector<std::string>& only = {});

/// "ok", "warning", "failed", "not_here": the same in every language.
const char* verdict_name(Verdict verdict);
/// The results as a table for the terminal, with a last line of numbers.
std::string describe(const std::vector<Result>& results);
bool has_failed(const std::vector<Result>& results);

// --- the checks, by source file ------------------------------------------------------------------
Finding check_cpu(const SystemRoots& roots);
Finding check_quota(const SystemRoots& roots);
Finding check_memory(const SystemRoots& roots);
Finding check_shm(const SystemRoots& roots);
Finding check_limits(const SystemRoots& roots);
Finding check_disk(const SystemRoots& roots);
Finding check_locks(const SystemRoots& roots);
Finding check_ports(const SystemRoots& roots);
Finding check_environment(const SystemRoots& roots);
Finding check_libtorch(const SystemRoots& roots);
Finding check_media(const SystemRoots& roots);
Finding check_numa(const SystemRoots& roots);
Finding check_network(const SystemRoots& roots);
Finding check_hub(const SystemRoots& roots);
Finding check_clock(const SystemRoots& roots);
Finding check_cuda(const SystemRoots& roots);
Finding check_npu(const SystemRoots& roots);
Finding check_npu_engine(const SystemRoots& roots);
Finding check_driver(const SystemRoots& roots);
Finding check_cann(const SystemRoots& roots);
Finding check_torch_npu(const SystemRoots& roots);
Finding check_hccl(const SystemRoots& roots);
Finding check_links(const SystemRoots& roots);
Finding check_stale(const SystemRoots& roots);
Finding check_affinity(const SystemRoots& roots);
Finding check_queue(const SystemRoots& roots);
Finding check_visible(const SystemRoots& roots);

}  // namespace danlu::doctor
