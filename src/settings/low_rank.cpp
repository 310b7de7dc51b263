#include "settings/low_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "settings/optimizer.h"

namespace danlu::settings {

namespace {

[[noreturn]] void refuse_field(const LowRankConfig& config, const std::string& field,
                               const std::string& got, const std::string& rule) {
  throw UsageError(tr("[{}] {} must be {}, got {}", config.name(), field, rule, got));
}

}  // namespace

void LowRankConfig::validate() const {
  if (rank < 1) refuse_field(*this, "rank", std::to_string(rank), "at least 1");
  if (interval < 1) refuse_field(*this, "update_interval", std::to_string(interval), "at least 1");
  if (!(scale > 0) || !std::isfinite(scale))
    refuse_field(*this, "scale", fmt::format("{}", scale), "positive");
  constexpr std::array kSides = {"std", "reverse_std", "right", "left", "full"};
  if (std::find(kSides.begin(), kSides.end(), side) == kSides.end())
    refuse_field(*this, "proj_type", side, "std, reverse_std, right, left, full");
  if (method == Method::kApollo && (side == "full" || side == "reverse_std"))
    refuse_field(*this, "proj_type", side, "std, right, left");
}

ShrunkSides shrunk_sides(const LowRankConfig& config, int64_t rows, int64_t cols) {
  if (config.side == "full") return {.right = true, .left = true};
  const bool right = config.side == "std"           ? rows >= cols
                     : config.side == "reverse_std" ? rows < cols
                                                    : config.side == "right";
  return {.right = right, .left = !right};
}

bool takes_low_rank(const LowRankConfig& config, const arch::ParamSpec& spec) {
  if (spec.shape.size() != 2 || spec.is_bias) return false;
  if (config.with_embedding && spec.role == arch::Role::kEmbedding) return true;
  if (config.targets.empty()) return takes_muon(spec);
  if (spec.role == arch::Role::kPositions) return false;
  const std::string module = arch::module_of(spec.name);
  return std::any_of(config.targets.begin(), config.targets.end(), [&](const std::string& part) {
    return module.find(part) != std::string::npos;
  });
}

std::vector<WholeState> low_rank_state(const LowRankConfig& config, int64_t rows, int64_t cols) {
  const auto [right, left] = shrunk_sides(config, rows, cols);
  // No matrix has more singular vectors than its smaller side.
  const int64_t rank = config.draws ? config.rank : std::min({config.rank, rows, cols});
  std::vector<WholeState> state;
  if (right) state.push_back({"low_projection.", {rank, cols}});
  if (left) state.push_back({"low_projection_left.", {rows, rank}});
  const std::vector<int64_t> low = {left ? rank : rows, right ? rank : cols};
  state.push_back({"low_avg.", low});
  state.push_back({"low_avg_sq.", low});
  if (config.method == LowRankConfig::Method::kApollo) state.push_back({"low_norm.", {1}});
  return state;
}

int64_t mini_blocks(const AdamMiniConfig& config, const arch::ParamSpec& spec) {
  using arch::Role;
  if (spec.name.find(".lora_") != std::string::npos) return 1;
  if (spec.role == Role::kEmbedding || spec.role == Role::kHead || spec.role == Role::kPositions ||
      spec.name.find("embed") != std::string::npos)
    return 0;
  const bool has_heads = (spec.role == Role::kQ || spec.role == Role::kK) && !spec.is_bias &&
                         spec.shape.size() == 2 && config.head_size > 0;
  return has_heads && spec.shape[0] % config.head_size == 0 ? spec.shape[0] / config.head_size : 1;
}

StateRule state_rule(const AdamWConfig& config, const arch::ParamSpec& spec) {
  using Kind = StateRule::Kind;
  if (config.muon && takes_muon(spec))
    return {.kind = Kind::kMuon, .has_avg = true, .has_squares = false};
  if (config.low_rank && takes_low_rank(*config.low_rank, spec)) {
    return {.kind = Kind::kLowRank,
            .has_avg = false,
            .has_squares = false,
            .wholes = low_rank_state(*config.low_rank, spec.shape[0], spec.shape[1])};
  }
  const int64_t blocks = config.mini ? mini_blocks(*config.mini, spec) : 0;
  if (blocks == 0) return {};
  return {.kind = Kind::kMini,
          .has_avg = true,
          .has_squares = false,
          .wholes = {{"block_avg_sq.", {blocks}}}};
}

int64_t state_numel(const AdamWConfig& config, const arch::ParamSpec& spec) {
  const auto count = [](const std::vector<int64_t>& shape) {
    return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  };
  const StateRule rule = state_rule(config, spec);
  int64_t numbers = ((rule.has_avg ? 1 : 0) + (rule.has_squares ? 1 : 0)) * count(spec.shape);
  for (const WholeState& whole : rule.wholes) numbers += count(whole.shape);
  return numbers;
}

}  // namespace danlu::settings
