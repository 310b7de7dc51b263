#include "settings/options/freeze_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "arch/shard.h"
#include "base/error.h"
#include "base/pattern.h"

namespace danlu::settings {
namespace {

using Patterns = std::vector<std::string>;

/// What matches `text` and nothing else.
std::string escaped(const std::string& text) {
  std::string pattern;
  for (const char c : text) {
    if (std::string_view(".[](){}*+?^$|\\").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

/// The parameters of a model, in its order, without second names of a table.
std::vector<arch::ParamSpec> own_parameters(const arch::ModelConfig& model) {
  std::vector<arch::ParamSpec> own;
  for (const arch::ParamSpec& spec : arch::parameters_of(model))
    if (spec.tied_to.empty()) own.push_back(spec);
  return own;
}

/// Whether transformers has the norm behind the matrices of its layer: in modules that are called
/// as Llama's are.
bool stands_last(const arch::ParamSpec& spec) {
  using arch::Role;
  static const std::vector<Role> kNorms = {Role::kAttentionNorm, Role::kPostAttentionNorm,
                                           Role::kMlpNorm, Role::kPostMlpNorm};
  return spec.layer >= 0 && spec.name.starts_with("model.layers.") &&
         std::find(kNorms.begin(), kNorms.end(), spec.role) != kNorms.end();
}

/// The same in the order of transformers' model.parameters().
std::vector<arch::ParamSpec> in_transformers_order(std::vector<arch::ParamSpec> all) {
  for (auto begin = all.begin(); begin != all.end();) {
    const auto end = std::find_if(begin, all.end(), [&](const arch::ParamSpec& spec) {
      return spec.layer != begin->layer || spec.tower_place != begin->tower_place;
    });
    std::stable_partition(begin, end,
                          [](const arch::ParamSpec& spec) { return !stands_last(spec); });
    begin = end;
  }
  return all;
}

int64_t elements_of(const arch::ParamSpec& spec) {
  int64_t elements = 1;
  for (const int64_t size : spec.shape) elements *= size;
  return elements;
}

/// As ms-swift counts: parameters from the first on, as long as they are no more than this part.
Patterns first_part(const arch::ModelConfig& model, double part) {
  if (part >= 1) return {"."};
  const std::vector<arch::ParamSpec> all = in_transformers_order(own_parameters(model));
  int64_t whole = 0, taken = 0;
  for (const arch::ParamSpec& spec : all) whole += elements_of(spec);
  Patterns patterns;
  for (const arch::ParamSpec& spec : all) {
    taken += elements_of(spec);
    if (taken > static_cast<int64_t>(static_cast<double>(whole) * part)) break;
    patterns.push_back("^" + escaped(spec.name) + "$");
  }
  return patterns;
}

/// LLaMA-Factory's: `count` layers from the last on, below 0 from the first on; with use_llama_pro
/// those that stand at the end of as many equal runs, where expanded models have their new ones.
std::vector<int64_t> trained_layers(const Options& options, int64_t count, int64_t layers) {
  const std::string flag = options.is_given("freeze_trainable_layers")
                               ? options.given_as("freeze_trainable_layers")
                               : "--freeze_trainable_layers";
  const int64_t number = std::abs(count);
  if (number > layers)
    throw UsageError(tr("[freeze] {} {}: the model has {} layers", flag, count, layers));
  std::vector<int64_t> chosen;
  if (!options.get_bool_or("use_llama_pro", false)) {
    const int64_t first = count > 0 ? layers - number : 0;
    for (int64_t layer = first; layer < first + number; ++layer) chosen.push_back(layer);
    return chosen;
  }
  if (count <= 0 || layers % count != 0) {
    throw UsageError(
        tr("[freeze] {} {}: LLaMA Pro adds a layer behind every so many, and {} layers are no "
           "multiple of that number of new ones",
           flag, count, layers));
  }
  for (int64_t layer = layers / count - 1; layer < layers; layer += layers / count)
    chosen.push_back(layer);
  return chosen;
}

/// Whether a word of freeze_trainable_modules means the parameter: a part of its name.
bool is_part_of(const std::string& word, const std::string& name) {
  return word == "all" || ("." + name + ".").find("." + word + ".") != std::string::npos;
}

void require_all_found(const Options& options, const char* option, const Patterns& words,
                       const std::set<std::string>& found) {
  for (const std::string& word : words) {
    if (found.count(word)) continue;
    throw UsageError(tr("[freeze] {} {}: no parameter there has that in its name",
                        options.given_as(option), word));
  }
}

Patterns by_layers(const Options& options, const arch::ModelConfig& model) {
  const std::vector<int64_t> chosen =
      trained_layers(options, options.get_int_or("freeze_trainable_layers", 2), model.num_layers);
  Patterns words = options.get_list("freeze_trainable_modules");
  if (words.empty()) words = {"all"};
  const Patterns extra = options.get_list("freeze_extra_modules");
  Patterns patterns = {"."};
  std::set<std::string> found, found_extra;
  for (const arch::ParamSpec& spec : own_parameters(model)) {
    const bool is_chosen = std::count(chosen.begin(), chosen.end(), spec.layer) > 0;
    const auto named = [&](const Patterns& list, std::set<std::string>& by) {
      bool is_named = false;
      for (const std::string& word : list) {
        if (!is_part_of(word, spec.name)) continue;
        by.insert(word);
        is_named = true;
      }
      return is_named;
    };
    const bool in_layer = is_chosen && spec.tower_place < 0 && named(words, found);
    if (in_layer || (spec.layer < 0 && named(extra, found_extra)))
      patterns.push_back("!^" + escaped(spec.name) + "$");
  }
  if (!chosen.empty()) require_all_found(options, "freeze_trainable_modules", words, found);
  require_all_found(options, "freeze_extra_modules", extra, found_extra);
  return patterns;
}

/// Whether the line speaks of layers as LLaMA-Factory does, whose freeze tuner trains two of them
/// where nothing says how many.
bool speaks_of_layers(const Options& options, Tuner tuner) {
  for (const char* name :
       {"freeze_trainable_layers", "freeze_trainable_modules", "freeze_extra_modules"})
    if (options.is_given(name)) return true;
  if (options.get_bool_or("use_llama_pro", false)) return true;
  return tuner == Tuner::kFreeze && options.profile().name == "llamafactory" &&
         !options.is_given("freeze");
}

/// Errors: UsageError, with the flag and the word as typed, where the pattern is none or matches no
/// parameter.
void require_found(const std::string& flag, const std::string& word, const std::string& pattern,
                   const arch::ModelConfig& model) {
  const std::vector<arch::ParamSpec> all = arch::parameters_of(model);
  try {
    const Pattern expression(pattern);
    for (const arch::ParamSpec& spec : all)
      if (expression.is_found_in(spec.name)) return;
  } catch (const PatternError& error) {
    throw UsageError(tr("[freeze] {}: {}", flag, error.what()), error.hint());
  }
  throw UsageError(tr("[freeze] {} '{}' matches no parameter; names look like '{}', '{}'", flag,
                      word, all.front().name, all[all.size() / 2].name));
}

}  // namespace

std::vector<std::string> freeze_patterns(const Options& options, Tuner tuner,
                                         const arch::ModelConfig& model) {
  Patterns patterns;
  const auto add = [&](const Patterns& more) {
    patterns.insert(patterns.end(), more.begin(), more.end());
  };
  const auto add_typed = [&](const char* option, const std::string& word, bool trains,
                             const std::string& pattern) {
    require_found(options.given_as(option), word, pattern, model);
    patterns.push_back((trains ? "!" : "") + pattern);
  };
  for (const std::string& word : options.get_list("freeze")) {
    const bool trains = word.starts_with('!');
    add_typed("freeze", word, trains, word.substr(trains ? 1 : 0));
  }
  if (options.has_value("freeze_parameters_regex")) {
    const std::string word = options.get_string("freeze_parameters_regex");
    add_typed("freeze_parameters_regex", word, /*trains=*/false, word);
  }
  if (options.has_value("freeze_parameters_ratio"))
    add(first_part(model, options.get_float("freeze_parameters_ratio")));
  if (tuner == Tuner::kFreeze && speaks_of_layers(options, tuner)) add(by_layers(options, model));
  for (const std::string& prefix : options.get_list("trainable_parameters"))
    add_typed("trainable_parameters", prefix, /*trains=*/true, "^" + escaped(prefix));
  if (options.has_value("trainable_parameters_regex")) {
    const std::string word = options.get_string("trainable_parameters_regex");
    add_typed("trainable_parameters_regex", word, /*trains=*/true, word);
  }
  return patterns;
}

}  // namespace danlu::settings
