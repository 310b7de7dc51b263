#include <fmt/format.h>

#include "settings/optimizer.h"

namespace danlu::settings {

std::string optimizer_words(const AdamWConfig& config) {
  if (config.mini) return "Adam-mini";
  if (config.turns) {
    const LayerTurns& turns = *config.turns;
    return fmt::format(
        "{} ({} at a time, {} updates each)", turns.name(),
        turns.layers == 1 ? std::string("1 layer") : fmt::format("{} layers", turns.layers),
        turns.interval);
  }
  if (!config.low_rank) return "";
  const LowRankConfig& low = *config.low_rank;
  const bool is_galore = low.method == LowRankConfig::Method::kGalore;
  return fmt::format("{} (rank {}, {}{}, new every {} steps, scale {:.3g}{})", low.name(), low.rank,
                     is_galore || !low.draws ? "svd " : "random ", low.side, low.interval,
                     low.scale,
                     is_galore            ? ""
                     : low.has_one_factor ? ", one factor"
                                          : ", factors by channel");
}

}  // namespace danlu::settings
