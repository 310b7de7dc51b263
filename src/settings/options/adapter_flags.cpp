#include "settings/options/adapter_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "weights/lora/adapter_places.h"

namespace danlu::settings {
namespace {

/// Collects given flags whose value differs from the adapter's.
class AdapterCheck {
 public:
  explicit AdapterCheck(const Options& options) : options_(options) {}

  bool given(const char* name) const { return options_.is_given(name); }

  void number(const char* name, double given_value, double actual) {
    if (given(name) && std::abs(given_value - actual) > 1e-9 * std::abs(actual))
      differ(name, fmt::format("{}", given_value), fmt::format("{}", actual));
  }
  void flag(const char* name, bool actual) {
    if (given(name) && options_.get_bool(name) != actual)
      differ(name, actual ? "false" : "true", actual ? "true" : "false");
  }
  void differ(const char* name, const std::string& got, const std::string& actual) {
    found_ += fmt::format("{}{} {} (adapter: {})", found_.empty() ? "" : ", ",
                          options_.given_as(name), got, actual);
  }
  const std::string& found() const { return found_; }

 private:
  const Options& options_;
  std::string found_;
};

std::vector<std::string> sorted(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  return names;
}

void compare_targets(AdapterCheck& check, const std::vector<std::string>& targets,
                     const weights::PeftConfig& peft, const arch::ModelConfig& model) {
  const bool by_regex = check.given("target_regex");
  if (!check.given("lora_target") && !by_regex) return;
  weights::PeftConfig given;
  weights::set_targets(given, targets);
  given.targets_are_pattern |= by_regex;
  weights::keep_out_of_tower(given, model);
  if (weights::chosen_modules(given, model) == weights::chosen_modules(peft, model)) return;
  check.differ(by_regex ? "target_regex" : "lora_target",
               fmt::format("{}", fmt::join(targets, ",")),
               fmt::format("{}", fmt::join(sorted(peft.target_modules), ",")));
}

}  // namespace

void check_adapter_flags(const Options& options, const std::filesystem::path& adapter,
                         const std::vector<std::string>& targets, const arch::ModelConfig& model) {
  const weights::PeftConfig peft = weights::load_peft_config(adapter);
  AdapterCheck check(options);
  check.number("lora_rank", static_cast<double>(options.get_int("lora_rank")),
               static_cast<double>(peft.rank));
  check.number("lora_alpha", options.get_float("lora_alpha"), peft.alpha);
  check.number("lora_dropout", options.get_float("lora_dropout"), peft.dropout);
  check.flag("use_rslora", peft.rslora);
  check.flag("use_dora", peft.dora);
  compare_targets(check, targets, peft, model);
  const std::vector<std::string> saved = sorted(options.get_list("lora_modules_to_save"));
  if (check.given("lora_modules_to_save") && saved != sorted(peft.modules_to_save)) {
    check.differ("lora_modules_to_save", fmt::format("{}", fmt::join(saved, ",")),
                 peft.modules_to_save.empty()
                     ? "none"
                     : fmt::format("{}", fmt::join(sorted(peft.modules_to_save), ",")));
  }
  if (check.found().empty()) return;
  throw UsageError(tr("[train] flags disagree with {}: {}",
                      (adapter / "adapter_config.json").string(), check.found()),
                   tr("leave them out: the adapter says what it is. For another shape merge it "
                      "first (danlu merge) and start a new one"));
}

}  // namespace danlu::settings
