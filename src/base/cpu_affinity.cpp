#include "base/cpu_affinity.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace danlu {
namespace {

constexpr int64_t kMostProcessors = 65535;

struct Bound {
  std::string value;  ///< of the variable
  int mode = 0;
  std::vector<int> processors;
};
/// Written once, before there are threads.
Bound bound;

[[noreturn]] void refuse_affinity(std::string_view text, std::string_view part) {
  throw UsageError(
      tr("[CPU_AFFINITY_CONF] '{}' of '{}' cannot be read", part, text),
      tr("MODE[,force:1][,npu0:0-15,npu1:16-31…] with mode 0 (off), 1 (each rank in its "
         "range) or 2 (each thread on a processor of its own)"));
}

std::optional<int64_t> whole_number_in(std::string_view text) {
  int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  if (read.ec != std::errc() || read.ptr != end || number < 0) return std::nullopt;
  return number;
}

std::string_view bare(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

/// "3" and "0-3", both ends included.
std::optional<std::vector<int>> range_of(std::string_view text) {
  const size_t dash = text.find('-');
  const auto first = whole_number_in(text.substr(0, dash));
  const auto last = dash == text.npos ? first : whole_number_in(text.substr(dash + 1));
  if (!first || !last || *last < *first || *last > kMostProcessors) return std::nullopt;
  std::vector<int> processors;
  for (int64_t i = *first; i <= *last; ++i) processors.push_back(static_cast<int>(i));
  return processors;
}

std::vector<int> united(std::vector<int> left, const std::vector<int>& right) {
  left.insert(left.end(), right.begin(), right.end());
  std::sort(left.begin(), left.end());
  left.erase(std::unique(left.begin(), left.end()), left.end());
  return left;
}

/// One of "key:value"; false if it is not of that form.
bool take_part(CpuAffinity& affinity, std::string_view part) {
  const size_t colon = part.find(':');
  if (colon == part.npos) return false;
  const std::string_view key = bare(part.substr(0, colon)), value = bare(part.substr(colon + 1));
  const bool is_switch = value == "0" || value == "1";
  if (key == "force" && is_switch) {
    affinity.force = value == "1";
    return true;
  }
  if (key == "npu_affine" && is_switch) {
    affinity.by_card = value == "1";
    return true;
  }
  if ((key == "lazy_bind" || key == "bind_irq") && is_switch) {
    affinity.without_effect.emplace_back(part);
    return true;
  }
  const int64_t card = key.starts_with("npu") ? whole_number_in(key.substr(3)).value_or(-1) : -1;
  const auto range = range_of(value);
  if (card < 0 || !range) return false;
  affinity.ranges[card] = united(affinity.ranges[card], *range);
  return true;
}

std::string listed(const std::vector<int>& processors) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < processors.size();) {
    size_t end = i + 1;
    while (end < processors.size() && processors[end] == processors[end - 1] + 1) ++end;
    parts.push_back(end - i == 1 ? fmt::format("{}", processors[i])
                                 : fmt::format("{}-{}", processors[i], processors[end - 1]));
    i = end;
  }
  return fmt::format("{}", fmt::join(parts, ","));
}

std::vector<int> common(const std::vector<int>& left, const std::vector<int>& right) {
  const std::set<int> others(right.begin(), right.end());
  std::vector<int> both;
  std::copy_if(left.begin(), left.end(), std::back_inserter(both),
               [&](int processor) { return others.count(processor) > 0; });
  return both;
}

CpuBinding named_range(const CpuAffinity& affinity, int64_t local_rank,
                       const std::vector<int>& allowed) {
  const std::vector<int>& range = affinity.ranges.at(local_rank);
  const std::vector<int> usable = common(range, allowed);
  if (usable.empty() || (usable.size() < range.size() && !affinity.force)) {
    if (usable.empty())
      return {.why_not = tr("of npu{}'s processors {} this process may use none", local_rank,
                            listed(range))};
    return {.why_not = tr("of npu{}'s processors {} this process may use {} only", local_rank,
                          listed(range), listed(usable))};
  }
  return {.processors = usable};
}

/// The `number`-th of `count` equal parts; nothing where there are fewer processors.
std::vector<int> part_of(const std::vector<int>& all, size_t number, size_t count) {
  const auto size = static_cast<std::ptrdiff_t>(all.size() / count),
             begin = static_cast<std::ptrdiff_t>(number) * size;
  return {all.begin() + begin, all.begin() + begin + size};
}

CpuBinding near_card(const CpuAffinity& affinity, int64_t local_rank, int64_t local_size,
                     const std::vector<int>& allowed, const NearProcessors& near) {
  const auto rank = static_cast<size_t>(local_rank);
  const std::vector<int>& own = near[rank];
  const std::vector<int> usable = common(own, allowed);
  if (usable.empty() || (usable.size() < own.size() && !affinity.force)) {
    return {.why_not = tr("of the processors {} near npu{} this process may use {}; force:1 takes "
                          "those",
                          listed(own), local_rank, usable.empty() ? "-" : listed(usable))};
  }
  size_t number = 0, count = 0;
  for (size_t i = 0; i < near.size() && i < static_cast<size_t>(local_size); ++i) {
    if (near[i] != own) continue;
    if (i < rank) ++number;
    ++count;
  }
  CpuBinding part{.processors = part_of(usable, number, count)};
  if (part.processors.empty())
    part.why_not = tr("{} ranks share {} processors", count, usable.size());
  return part;
}

void keep_to(const std::vector<int>& processors) {
  // Sized for the highest of them: a cpu_set_t ends at 1024.
  const size_t count = static_cast<size_t>(processors.back()) + 1;
  cpu_set_t* set = CPU_ALLOC(count);
  const size_t size = CPU_ALLOC_SIZE(count);
  CPU_ZERO_S(size, set);
  for (const int processor : processors) CPU_SET_S(static_cast<size_t>(processor), size, set);
  const int failed = ::sched_setaffinity(0, size, set);
  const int code = errno;
  CPU_FREE(set);
  if (failed == 0) return;
  throw DeviceError(tr("[CPU_AFFINITY_CONF] the system does not keep this process to processors "
                       "{}: {}",
                       listed(processors), std::strerror(code)),
                    tr("unset CPU_AFFINITY_CONF, or name processors that are there"));
}

}  // namespace

CpuAffinity parse_cpu_affinity(std::string_view text) {
  CpuAffinity affinity;
  bool is_first = true;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string_view part = bare(text.substr(begin, end - begin));
    begin = end + 1;
    if (std::exchange(is_first, false)) {
      if (part.starts_with("mode:")) part.remove_prefix(5);
      const auto mode = whole_number_in(part);
      if (!mode || *mode > 2) refuse_affinity(text, part);
      affinity.mode = static_cast<int>(*mode);
    } else if (!take_part(affinity, part)) {
      refuse_affinity(text, part);
    }
  }
  return affinity;
}

CpuAffinity cpu_affinity_from_environment() {
  const char* set = std::getenv("CPU_AFFINITY_CONF");
  return set && *set ? parse_cpu_affinity(set) : CpuAffinity();
}

CpuBinding cpu_binding(const CpuAffinity& affinity, int64_t local_rank, int64_t local_size,
                       const std::vector<int>& online, const std::vector<int>& allowed,
                       const NearProcessors& near) {
  if (!affinity.is_on()) return {};
  if (affinity.ranges.count(local_rank)) return named_range(affinity, local_rank, allowed);
  const bool is_known = local_rank >= 0 && static_cast<size_t>(local_rank) < near.size() &&
                        !near[static_cast<size_t>(local_rank)].empty();
  if (affinity.by_card && is_known && local_rank < std::max<int64_t>(1, local_size))
    return near_card(affinity, local_rank, std::max<int64_t>(1, local_size), allowed, near);
  if (allowed.empty()) return {.why_not = tr("the system does not say what it may run on")};
  if (common(online, allowed).size() < online.size() && !affinity.force) {
    return {.why_not = tr("this process is kept to processors {} already; force:1 divides those",
                          listed(allowed))};
  }
  const std::vector<int>& all = affinity.force ? allowed : online;
  const auto sharers = static_cast<size_t>(std::max<int64_t>(1, local_size));
  if (all.size() < sharers) {
    return {.why_not = tr("{} ranks share {} processors", local_size, all.size())};
  }
  if (static_cast<size_t>(local_rank) >= sharers) {
    return {.why_not = tr("local rank {} is none of 0 to {}", local_rank, sharers - 1)};
  }
  return {.processors = part_of(all, static_cast<size_t>(local_rank), sharers)};
}

std::vector<int> online_cpus() {
  std::ifstream file("/sys/devices/system/cpu/online");
  std::vector<int> all;
  for (std::string part; std::getline(file, part, ',');) {
    if (const auto range = range_of(part.substr(0, part.find('\n')))) all = united(all, *range);
  }
  return all.empty() ? allowed_cpus() : all;
}

std::vector<int> allowed_cpus() {
  constexpr size_t kCount = kMostProcessors + 1;
  cpu_set_t* set = CPU_ALLOC(kCount);
  const size_t size = CPU_ALLOC_SIZE(kCount);
  std::vector<int> allowed;
  if (::sched_getaffinity(0, size, set) == 0) {
    for (size_t i = 0; i < kCount; ++i) {
      if (CPU_ISSET_S(i, size, set)) allowed.push_back(static_cast<int>(i));
    }
  }
  CPU_FREE(set);
  return allowed;
}

void bind_process(const RankPlace& place, const std::function<NearProcessors()>& near) {
  const CpuAffinity affinity = cpu_affinity_from_environment();
  if (!affinity.is_on()) return;
  const NearProcessors of_cards = affinity.by_card && near ? near() : NearProcessors();
  const auto rank = static_cast<size_t>(std::max<int64_t>(0, place.local_rank));
  if (affinity.by_card && (rank >= of_cards.size() || of_cards[rank].empty())) {
    log::notice(
        "CPU_AFFINITY_CONF: npu-smi does not say which processors are near npu:{}; an equal split "
        "of all is taken",
        place.local_rank);
  }
  // Where nobody said which of this machine's ranks this is, all would take the same part.
  const bool is_guess = place.size > 1 && (!place.says_local_rank || !place.says_local_size);
  const CpuBinding binding =
      is_guess ? CpuBinding{.why_not = tr("nobody says which of this machine's ranks this is")}
               : cpu_binding(affinity, place.local_rank, place.local_size, online_cpus(),
                             allowed_cpus(), of_cards);
  if (binding.processors.empty()) {
    if (!binding.why_not.empty())
      log::warning("CPU_AFFINITY_CONF has no effect: {}", binding.why_not);
    return;
  }
  keep_to(binding.processors);
  bound = {std::getenv("CPU_AFFINITY_CONF"), affinity.mode, binding.processors};
}

bool binds_compute_threads() { return bound.mode == 2; }

void bind_compute_thread(int64_t number, int64_t count) {
  const auto place = static_cast<size_t>(number);
  if (!binds_compute_threads() || number == 0) return;
  if (static_cast<size_t>(count) > bound.processors.size() || place >= bound.processors.size())
    return;
  keep_to({bound.processors[place]});
}

std::string describe_binding() {
  if (bound.processors.empty()) return "";
  return tr("processors {} (CPU_AFFINITY_CONF={})", listed(bound.processors), bound.value);
}

}  // namespace danlu
