#include "cli/engine/speculation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/nearest_name.h"

namespace danlu::cli {
namespace {

/// vLLM has had names of its own for some families.
bool is_prediction(const std::string& method) {
  return method == "mtp" || method == "deepseek_mtp" || method == "glm4_moe_mtp";
}

void refuse_other_keys(const std::string& flag, const Json& json,
                       const std::vector<std::string>& known) {
  for (const auto& [key, value] : json.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const auto meant = nearest_name(key, known);
    throw UsageError(tr("[{}] {} says nothing here", flag, key),
                     meant ? tr("did you mean {}?", *meant)
                           : tr("it has {}", fmt::format("{}", fmt::join(known, ", "))));
  }
}

}  // namespace

infer::Speculation speculation_from(const Options& options) {
  infer::Speculation speculation;
  if (!options.has_value("speculative_config")) return speculation;
  const std::string flag = options.given_as("speculative_config");
  const Json json = options.get_json("speculative_config");
  const Json named = json.is_object() ? json.value("method", Json("")) : Json("");
  const std::string method = named.is_string() ? named.get<std::string>() : "";
  const bool predicts = is_prediction(method);
  if (!predicts && method != "ngram") {
    throw UsageError(
        tr("[{}] tokens are guessed from the text itself (ngram) or by the model's own "
           "layer that predicts further ahead (mtp)",
           flag),
        tr("give {{\"method\": \"ngram\", \"num_speculative_tokens\": 4}}"));
  }
  const auto whole = [&](const char* key, int64_t otherwise) {
    if (!json.contains(key)) return otherwise;
    if (!json.at(key).is_number_integer() || json.at(key) < 1 || json.at(key) > 64)
      throw UsageError(tr("[{}] {} must be from 1 to 64, got {}", flag, key, json.at(key).dump()));
    return json.at(key).get<int64_t>();
  };
  if (predicts) {
    refuse_other_keys(flag, json, {"method", "num_speculative_tokens"});
    speculation.predicted_tokens = whole("num_speculative_tokens", 1);
  } else {
    refuse_other_keys(
        flag, json, {"method", "num_speculative_tokens", "prompt_lookup_max", "prompt_lookup_min"});
    infer::PromptLookup& lookup = speculation.lookup;
    lookup.num_tokens = whole("num_speculative_tokens", 4);
    lookup.longest = whole("prompt_lookup_max", 4);
    lookup.shortest = whole("prompt_lookup_min", std::min<int64_t>(2, lookup.longest));
    if (lookup.shortest > lookup.longest)
      throw UsageError(tr("[{}] prompt_lookup_min is above prompt_lookup_max", flag));
  }
  return speculation;
}

infer::Speculation speculation_beside(const Options& options,
                                      const infer::SamplingParams& sampling) {
  const infer::Speculation speculation = speculation_from(options);
  if (speculation.guesses() && sampling.num_beams > 1) {
    throw UsageError(
        tr("[{}] beams are searched without guesses", options.given_as("speculative_config")),
        tr("leave out one of both"));
  }
  return speculation;
}

}  // namespace danlu::cli
