// Variables of scripts for Ascend: their form, and what they will do here.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/cpu_affinity.h"
#include "base/error.h"
#include "base/message.h"
#include "doctor/cards.h"
#include "doctor/check.h"
#include "doctor/devices.h"

namespace danlu::doctor {
namespace {

std::vector<int> all_processors(const SystemRoots& roots) {
  const auto online = line_in(roots.sys / "devices/system/cpu/online");
  const auto list = online ? processors_of(*online) : std::nullopt;
  return list && !list->empty() ? *list : allowed_processors(roots);
}

/// Ranks of this machine, as far as the environment says how many there will be.
int64_t ranks_here(const SystemRoots& roots, const CpuAffinity& affinity) {
  for (const char* name : {"LOCAL_WORLD_SIZE", "NPROC_PER_NODE", "NPUS_PER_NODE"}) {
    if (const auto said = number_of(roots.variable(name)); said && *said > 0) return *said;
  }
  const int64_t named = affinity.ranges.empty() ? 0 : affinity.ranges.rbegin()->first + 1;
  return std::min<int64_t>(std::max<int64_t>(1, named), 64);
}

/// What a list of cards means to their runtime: it ends at the first entry that is none.
struct CardList {
  std::vector<int64_t> cards;
  std::string ended_by;  ///< the entry that is none, if one did
};

CardList card_list(const std::string& value, bool must_ascend) {
  CardList list;
  for (size_t begin = 0; begin <= value.size();) {
    const size_t end = std::min(value.find(',', begin), value.size());
    const std::string entry = value.substr(begin, end - begin);
    begin = end + 1;
    const auto card = number_of(entry);
    const bool is_next =
        card && *card >= 0 && (!must_ascend || list.cards.empty() || *card > list.cards.back());
    if (!is_next) {
      list.ended_by = entry.empty() ? "," : entry;
      return list;
    }
    list.cards.push_back(*card);
  }
  return list;
}

void look_at_list(const SystemRoots& roots, const char* name, bool must_ascend, bool has_cards,
                  Finding& finding) {
  const std::string value = roots.variable(name);
  if (value.empty()) return;
  const bool is_identifier = value.starts_with("GPU-") || value.starts_with("MIG-");
  if (is_identifier) {
    finding.add(Verdict::kOk, fmt::format("{}={}", name, value));
    return;
  }
  const CardList list = card_list(value, must_ascend);
  const std::string cards = fmt::format("{}", fmt::join(list.cards, ", "));
  if (!list.ended_by.empty()) {
    finding.add(Verdict::kWarning,
                tr("{}={}: the list ends before '{}', cards that are seen: {}", name, value,
                   list.ended_by, cards.empty() ? std::string("-") : cards),
                tr("ascending numbers with commas and no blanks, such as 0,1,3"));
  } else {
    finding.add(Verdict::kOk, tr("{}: cards {} are seen, numbered from 0 on", name, cards));
  }
  if (!has_cards) finding.add(Verdict::kOk, tr("no such card here: it has no effect"));
}

}  // namespace

Finding check_affinity(const SystemRoots& roots) {
  const std::string value = roots.variable("CPU_AFFINITY_CONF");
  if (value.empty()) return Finding::not_here(tr("CPU_AFFINITY_CONF is not set"));
  CpuAffinity affinity;
  try {
    affinity = parse_cpu_affinity(value);
  } catch (const UsageError& error) {
    return {Verdict::kFailed, error.what(), error.hint()};
  }
  if (!affinity.is_on()) return {Verdict::kOk, tr("CPU_AFFINITY_CONF={}: off", value), ""};
  Finding finding;
  finding.read =
      affinity.mode == 1
          ? tr("mode 1: each rank, with all its threads, stays in its processors")
          : tr("mode 2: in each rank's processors, each compute thread on one of its own, and the "
               "main thread on any of them");
  const auto online = all_processors(roots), allowed = allowed_processors(roots);
  const int64_t ranks = ranks_here(roots, affinity);
  const NearProcessors near = affinity.by_card ? processors_near_npus(roots) : NearProcessors();
  if (affinity.by_card && near.empty()) {
    finding.add(Verdict::kWarning,
                tr("npu_affine:1, but npu-smi does not say which processors are near a card: an "
                   "equal split of all is taken"),
                tr("name them: npu0:0-23,npu1:24-47…"));
  }
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const CpuBinding binding = cpu_binding(affinity, rank, ranks, online, allowed, near);
    if (!binding.processors.empty()) {
      finding.add(Verdict::kOk,
                  tr("rank {} of {}: {}", rank, ranks, processor_list(binding.processors)));
    } else {
      finding.add(Verdict::kWarning,
                  tr("rank {} of {} stays as it is: {}", rank, ranks, binding.why_not),
                  tr("name processors that this process may use, or add force:1"));
    }
  }
  if (!affinity.without_effect.empty()) {
    finding.add(Verdict::kOk, tr("for NPUs only, no effect here: {}",
                                 fmt::format("{}", fmt::join(affinity.without_effect, ", "))));
  }
  return finding;
}

Finding check_queue(const SystemRoots& roots) {
  const std::string value = roots.variable("TASK_QUEUE_ENABLE");
  if (value.empty()) return Finding::not_here(tr("TASK_QUEUE_ENABLE is not set"));
  if (value != "0" && value != "1" && value != "2") {
    return {Verdict::kWarning, tr("TASK_QUEUE_ENABLE={} is none of 0, 1, 2", value),
            tr("unset it: 1 is what holds then on NPUs")};
  }
  Finding finding;
  finding.read = value == "0" ? tr("TASK_QUEUE_ENABLE=0: NPU work is begun by the thread that asks")
                 : value == "1" ? tr("TASK_QUEUE_ENABLE=1: a second thread begins NPU work")
                                : tr("TASK_QUEUE_ENABLE=2: a second thread prepares and begins NPU "
                                     "work, for some more memory");
  if (roots.variable("ASCEND_LAUNCH_BLOCKING") == "1")
    finding.add(Verdict::kOk, tr("ASCEND_LAUNCH_BLOCKING=1 overrules it"));
  finding.add(Verdict::kOk,
              tr("that is torch_npu's: danlu has no such queue, the thread that computes "
                 "gives NPUs their work, and the variable has no effect"));
  return finding;
}

Finding check_visible(const SystemRoots& roots) {
  Finding finding = Finding::not_here("");
  look_at_list(roots, "ASCEND_RT_VISIBLE_DEVICES", /*must_ascend=*/true, has_npu(roots), finding);
  look_at_list(roots, "CUDA_VISIBLE_DEVICES", /*must_ascend=*/false,
               !numbered_files(roots.dev, "nvidia").empty(), finding);
  if (const std::string given = roots.variable("ASCEND_VISIBLE_DEVICES"); !given.empty()) {
    // It is read when a container is made, and stays in its environment.
    finding.add(Verdict::kOk,
                tr("ASCEND_VISIBLE_DEVICES={}: cards that Ascend Docker Runtime gives a container; "
                   "a run does not read it, ASCEND_RT_VISIBLE_DEVICES chooses among them",
                   given));
  }
  if (finding.read.empty())
    finding.read = tr("neither ASCEND_RT_VISIBLE_DEVICES nor CUDA_VISIBLE_DEVICES is set");
  return finding;
}

}  // namespace danlu::doctor
