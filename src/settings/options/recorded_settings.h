// settings/options/recorded_settings.h: what a run writes down of the options that it was given.
#pragma once
#include <set>
#include <string>

#include "base/json.h"
#include "base/options.h"
#include "settings/config.h"

namespace danlu::settings {

/// The members of TrainConfig that have the same names.
struct RecordedSettings {
  Json args = Json::object(), settings = Json::object();
  std::set<std::string> of_machine, of_start;
};
/// REQUIRES: tuner, precision, data and profile of `config` are set.
RecordedSettings recorded_settings(const Options& options, const TrainConfig& config);

}  // namespace danlu::settings
