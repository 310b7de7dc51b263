#include "settings/recompute_layers.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace danlu::settings {
namespace {

void check_number(const char* flag, const std::optional<int64_t>& number) {
  if (number && *number < 1)
    throw UsageError(tr("[train] {} must be at least 1, got {}", flag, *number));
}

void check_full(const RecomputeFlags& flags) {
  const bool is_full = flags.granularity == "full";
  if (!is_full && (!flags.method.empty() || flags.num_layers)) {
    throw UsageError(tr("[train] --recompute-method and --recompute-num-layers divide full "
                        "recomputation, got --recompute-granularity {}",
                        flags.granularity),
                     tr("use --recompute-granularity full, or leave them out"));
  }
  if (flags.method == "block" && !flags.num_layers) {
    throw UsageError(tr("[train] --recompute-method block needs --recompute-num-layers"),
                     tr("give the number of layers of a stage to recompute, from its first"));
  }
  check_number("--recompute-num-layers", flags.num_layers);
}

void check_parts(const RecomputeFlags& flags) {
  if (!flags.activation_function && !flags.norm) return;
  const char* part = flags.norm ? "--recompute-norm" : "--recompute-activation-function";
  if (flags.granularity == "selective" || flags.granularity == "auto" ||
      (flags.granularity == "full" && flags.method != "block")) {
    throw UsageError(tr("[train] {} works on layers that nothing else recomputes, and {} leaves "
                        "none",
                        part, flags.granularity),
                     tr("use --recompute-method block with --recompute-num-layers"));
  }
  check_number("--recompute-activation-function-num-layers", flags.activation_function_num_layers);
  check_number("--recompute-norm-num-layers", flags.norm_num_layers);
}

void check(const RecomputeFlags& flags) {
  if (flags.granularity != "none" && flags.granularity != "selective" &&
      flags.granularity != "full" && flags.granularity != "auto") {
    throw UsageError(tr("[train] --recompute-granularity is none, selective, full or auto, got {}",
                        flags.granularity));
  }
  if (!flags.method.empty() && flags.method != "uniform" && flags.method != "block") {
    throw UsageError(tr("[train] --recompute-method is uniform or block, got {}", flags.method));
  }
  check_full(flags);
  check_parts(flags);
}

}  // namespace

std::string recompute_name(Recompute recompute) {
  return recompute == Recompute::kFull        ? "full"
         : recompute == Recompute::kSelective ? "selective"
                                              : "none";
}

std::string recompute_text(const RecomputeFlags& flags) {
  std::string text = flags.granularity;
  if (!flags.method.empty()) text += " " + flags.method;
  const auto count = [&](const std::optional<int64_t>& layers) {
    if (layers) text += fmt::format(" {}", *layers);
  };
  count(flags.num_layers);
  const auto part = [&](bool is_on, const char* name, const std::optional<int64_t>& layers) {
    if (!is_on) return;
    text = text == "none" ? name : text + ", " + name;
    count(layers);
  };
  part(flags.activation_function, "activation-function", flags.activation_function_num_layers);
  part(flags.norm, "norm", flags.norm_num_layers);
  return text;
}

std::vector<RecomputeGroup> recompute_groups(const RecomputeFlags& flags, int64_t num_layers) {
  check(flags);
  if (flags.granularity == "auto" && num_layers > 0)
    throw InternalError("[train] what is recomputed is not chosen yet");
  std::vector<RecomputeGroup> groups;
  int64_t at = 0;
  // A length of num_layers may be as large as the flag's, so ends are never sums with it.
  const auto add = [&](int64_t end, int64_t length, LayerRecompute kind) {
    while (at < end) {
      const int64_t next = at + std::min(length, end - at);
      groups.push_back({at, next, kind});
      at = next;
    }
  };
  const auto end_of = [&](const std::optional<int64_t>& count) {
    return at + std::min(count.value_or(num_layers), num_layers - at);
  };
  if (flags.granularity == "selective") add(num_layers, 1, LayerRecompute::kSelective);
  if (flags.granularity == "full" && flags.method == "block")
    add(end_of(flags.num_layers), 1, LayerRecompute::kFull);
  else if (flags.granularity == "full")
    add(num_layers, flags.num_layers.value_or(1), LayerRecompute::kFull);
  const int64_t activations =
      flags.activation_function ? end_of(flags.activation_function_num_layers) : at;
  const int64_t norms = flags.norm ? end_of(flags.norm_num_layers) : at;
  add(std::min(activations, norms), 1, LayerRecompute::kNormAndActivation);
  add(activations, 1, LayerRecompute::kActivationFunction);
  add(norms, 1, LayerRecompute::kNorm);
  add(num_layers, 1, LayerRecompute::kNone);
  return groups;
}

}  // namespace danlu::settings
