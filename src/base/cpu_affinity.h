// base/cpu_affinity.h: CPU_AFFINITY_CONF, by which ranks and their threads are kept to processors.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/rank_place.h"

namespace danlu {

/// "<mode>[,force:0|1][,npu<i>:<a>[-<b>]]…[,npu_affine:0|1][,lazy_bind:0|1][,bind_irq:0|1]", where
/// the mode may be written "mode:<n>".
/// Source: torch_npu's variable of that name, 7.1.
struct CpuAffinity {
  int mode = 0;        ///< 0: off; 1: all threads in the range; 2: each compute thread on its own
  bool force = false;  ///< also where the process is bound to processors already
  /// npu_affine: ranks that are not named get a part of the processors that are near their card,
  /// not of all.
  bool by_card = false;
  /// What the user named, by the number of the card, or of the rank on this machine. Several ranges
  /// of one are united.
  std::map<int64_t, std::vector<int>> ranges = {};
  std::vector<std::string> without_effect = {};  ///< keys that are for cards, as given

  bool is_on() const { return mode > 0; }
};

/// Errors: UsageError naming the part that is not of that form.
CpuAffinity parse_cpu_affinity(std::string_view text);
/// What the environment asks for; off where it is not set. Errors: as parse_cpu_affinity.
CpuAffinity cpu_affinity_from_environment();

struct CpuBinding {
  std::vector<int> processors = {};  ///< ascending; empty: nothing is changed
  std::string why_not = {};          ///< if something was asked for; in the terminal's language
};

/// The processors near the card of each rank on this machine, ascending; empty: not known.
using NearProcessors = std::vector<std::vector<int>>;

/// What rank `local_rank` of `local_size` on this machine is kept to: its range, else its part of
/// an equal split among the ranks whose cards are near the same processors (`near`, where
/// `affinity` asks for it and they are known), else of `online`, of which it may use `allowed`.
/// What is named or near must be allowed, the last split needs all of `online`; `force` takes what
/// is allowed of the ones, and splits `allowed`.
CpuBinding cpu_binding(const CpuAffinity& affinity, int64_t local_rank, int64_t local_size,
                       const std::vector<int>& online, const std::vector<int>& allowed,
                       const NearProcessors& near = {});

/// The processors of this machine, and those that this process may use. Empty where the system does
/// not say.
std::vector<int> online_cpus();
std::vector<int> allowed_cpus();

/// Keeps the calling thread, and with it those it will make, to what CPU_AFFINITY_CONF says of this
/// rank; a warning where that cannot be. Call it before libraries make threads. `near` is called
/// where cards decide. Errors: as parse_cpu_affinity.
void bind_process(const RankPlace& place, const std::function<NearProcessors()>& near = {});
/// In mode 2, keeps the calling thread to the one processor of the `number`-th compute thread. The
/// first is left in the whole range, since threads that it makes inherit its processors. Nothing in
/// other modes, and where there are more threads than processors.
void bind_compute_thread(int64_t number, int64_t count);
/// True if bind_compute_thread() does something.
bool binds_compute_threads();

/// "processors 0-3 (CPU_AFFINITY_CONF=1)"; empty where nothing was bound.
std::string describe_binding();

}  // namespace danlu
