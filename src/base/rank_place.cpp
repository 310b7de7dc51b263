#include "base/rank_place.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/environment.h"
#include "base/error.h"

namespace danlu {
namespace {

/// How a launcher names them.
struct Names {
  const char *rank, *size, *local_rank, *local_size;
};
constexpr Names kLaunchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"}};

std::optional<int64_t> number_in_environment(const char* name, int64_t least, int64_t most) {
  const std::string text = environment_variable(name);
  if (text.empty()) return std::nullopt;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    throw UsageError(
        tr("[ranks] {}={}: must be a whole number from {} to {}", name, text, least, most),
        tr("launchers set it; danlu launch --nproc N -- COMMAND sets all of them"));
  }
  return value;
}

int64_t needed(const char* name, int64_t most, const char* why) {
  const auto value = number_in_environment(name, 0, most);
  if (value) return *value;
  throw UsageError(tr("[ranks] {} is missing: {} says that several processes run", name, why),
                   tr("launchers set it; danlu launch --nproc N -- COMMAND sets all of them"));
}

/// torchrun listens at MASTER_PORT itself where it says so, with a store whose protocol is that of
/// its own version. 0: it does not.
int64_t port_of_launcher(int64_t master_port) {
  return environment_variable("TORCHELASTIC_USE_AGENT_STORE") == "True" ? master_port : 0;
}

/// Far enough from those that people give to jobs beside each other.
int64_t port_beside(int64_t port) {
  constexpr int64_t kApart = 1000, kLast = 65535;
  return port + kApart <= kLast ? port + kApart : port - kApart;
}

}  // namespace

RankPlace rank_place_from_environment() {
  constexpr int64_t kMost = 1'000'000;
  for (const Names& names : kLaunchers) {
    const auto size = number_in_environment(names.size, 1, kMost);
    if (!size) continue;
    // The innermost launcher decides: one process inside an allocation of many is alone.
    if (*size == 1) return {};
    RankPlace place;
    place.size = *size;
    place.rank = needed(names.rank, *size - 1, names.size);
    const auto local_size = number_in_environment(names.local_size, 1, *size);
    place.says_local_size = local_size.has_value();
    place.local_size = local_size.value_or(*size);
    const auto local_rank =
        number_in_environment(names.local_rank, 0, std::min(place.rank, place.local_size - 1));
    place.says_local_rank = local_rank || place.says_local_size;
    place.local_rank = local_rank.value_or(place.rank % place.local_size);
    place.master_address = environment_variable("MASTER_ADDR");
    if (place.master_address.empty()) {
      throw UsageError(
          tr("[ranks] MASTER_ADDR is missing: {} says that several processes run", names.size),
          tr("set it to the address of rank 0's machine, and MASTER_PORT to a port "
             "that is free there"));
    }
    place.master_port = needed("MASTER_PORT", 65535, names.size);
    place.launcher_port = port_of_launcher(place.master_port);
    if (place.launcher_port > 0) place.master_port = port_beside(place.launcher_port);
    place.ends_with_others = local_size == *size && !environment_variable("DANLU_JOB").empty();
    return place;
  }
  return {};
}

Restart restart_from_environment() {
  constexpr int64_t kMost = int64_t{1} << 40;
  const auto of_torchrun = number_in_environment("TORCHELASTIC_RESTART_COUNT", 0, kMost);
  return {number_in_environment("DANLU_RESTARTS", 0, kMost).value_or(of_torchrun.value_or(0)),
          environment_variable("DANLU_JOB"),
          number_in_environment("DANLU_JOB_RANKS", 0, kMost).value_or(0)};
}

}  // namespace danlu
