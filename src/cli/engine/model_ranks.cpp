#include "cli/engine/model_ranks.h"

#include "base/error.h"
#include "base/log.h"
#include "base/rank_place.h"

namespace danlu::cli {
namespace {

/// What all of them must have been told alike, without what is secret.
Json settings_of_parts(const Options& options) {
  Json settings = options.to_json();
  for (const OptionScope scope : {OptionScope::kMachine, OptionScope::kStart}) {
    for (const std::string& name : options.names(scope)) settings.erase(name);
  }
  settings.erase("api_key");
  return settings;
}

}  // namespace

parallel::Ranks model_ranks(const Options& options) {
  const int64_t parts = options.get_int("tensor_parallel_size");
  const RankPlace place = parts > 1 ? rank_place_from_environment() : RankPlace{};
  if (place.size != parts) {
    throw UsageError(tr("[{}] {} parts of a model are held by as many processes, and there are {}",
                        options.given_as("tensor_parallel_size"), parts, place.size),
                     tr("leave the launcher out, or start {} processes with it", parts));
  }
  if (place.rank > 0) log::set_level(log::Level::kError);
  return {place, {.tensor = parts}, options.get_float("ddp_timeout"), settings_of_parts(options)};
}

}  // namespace danlu::cli
