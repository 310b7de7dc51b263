// base/checkpoint_name.h: what a run's checkpoints are called: checkpoint-STEP.
#pragma once
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

namespace danlu {

/// The step of a directory's name; nothing for another name ("checkpoint-10-old").
inline std::optional<int64_t> step_of_checkpoint(std::string_view name) {
  constexpr std::string_view kPrefix = "checkpoint-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  int64_t step = 0;
  const auto [at, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || at != name.data() + name.size()) return std::nullopt;
  return step;
}

}  // namespace danlu
