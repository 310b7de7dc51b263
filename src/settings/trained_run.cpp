#include "settings/trained_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <vector>

#include "base/checkpoint_name.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/shell_quote.h"
#include "settings/config.h"
#include "settings/identity.h"
#include "text/template_choice.h"
#include "weights/convert/checkpoint_source.h"
#include "weights/megatron/place.h"

namespace danlu::settings {
namespace {

bool is_run(const fs::path& path) {
  std::error_code unknown;
  return fs::exists(path / "sft_args.json", unknown) && fs::exists(path / "config.yaml", unknown);
}

std::optional<int64_t> step_of(const fs::path& checkpoint) {
  return step_of_checkpoint(checkpoint.filename().string());
}

/// Whether every file that DONE names is there in its size.
bool is_whole(const fs::path& checkpoint) {
  std::error_code unknown;
  if (!fs::exists(checkpoint / "data_state.json", unknown)) return false;
  try {
    const Json done = read_json_file(checkpoint / "DONE");
    const Json files = json_get<Json>(done, "files").value_or(Json::object());
    return std::all_of(files.items().begin(), files.items().end(), [&](const auto& item) {
      std::error_code missing;
      const uintmax_t size = fs::file_size(checkpoint / item.key(), missing);
      return !missing && Json(size) == item.value();
    });
  } catch (const Error&) {
    return false;
  }
}

std::map<int64_t, fs::path> whole_checkpoints(const fs::path& run) {
  std::map<int64_t, fs::path> found;
  std::error_code unknown;
  for (fs::directory_iterator at(run, unknown), end; !unknown && at != end; at.increment(unknown)) {
    if (at->is_symlink(unknown)) continue;
    const auto step = step_of(at->path());
    if (step && is_whole(at->path())) found.emplace(*step, at->path());
  }
  return found;
}

TrainedRun of_checkpoint(const fs::path& run, const fs::path& checkpoint) {
  return {run, checkpoint, step_of(checkpoint),
          weights::detect_format(checkpoint) == weights::Format::kPeft};
}

/// Errors: ModelError naming the steps there are.
TrainedRun at_iteration(const fs::path& run, const std::map<int64_t, fs::path>& whole,
                        const std::string& iteration) {
  for (const auto& [step, checkpoint] : whole) {
    if (std::to_string(step) == iteration) return of_checkpoint(run, checkpoint);
  }
  // What it kept for Megatron may be of more steps.
  const fs::path kept = run / kMegatronFolder;
  std::vector<std::string> there;
  for (const auto& [step, checkpoint] : whole) there.push_back(std::to_string(step));
  std::error_code unknown;
  int64_t number = 0;
  const auto [stop, error] =
      std::from_chars(iteration.data(), iteration.data() + iteration.size(), number);
  const fs::path copy = kept / weights::megatron::iteration_directory(number);
  if (error == std::errc() && stop == iteration.data() + iteration.size() &&
      fs::is_directory(copy, unknown))
    return {run, copy, number, false};
  if (there.empty()) {
    throw ModelError(
        tr("{}: no whole checkpoint of iteration {}, nor of any other", run.string(), iteration));
  }
  throw ModelError(tr("{}: no whole checkpoint of iteration {}; there are: {}", run.string(),
                      iteration, fmt::join(there, ", ")),
                   tr("choose another with --iteration"));
}

/// args.json of a run; empty where it cannot be read.
Json args_of(const fs::path& run) {
  try {
    return read_json_file(run / "args.json");
  } catch (const Error&) {
    return Json::object();
  }
}

/// The identity of the model that a run's checkpoints began with; empty: nobody knows.
std::string model_of(const TrainedRun& trained) {
  std::vector<fs::path> places = {trained.holds};
  for (const auto& [step, checkpoint] : whole_checkpoints(trained.run))
    places.push_back(checkpoint);
  for (const fs::path& place : places) {
    try {
      const Json state = read_json_file(place / "trainer_state.json");
      const Json identity = json_get<Json>(state, "identity").value_or(Json::object());
      if (const auto model = json_get<std::string>(identity, "model")) return *model;
    } catch (const Error&) {
      continue;
    }
  }
  return "";
}

}  // namespace

std::optional<TrainedRun> find_trained_run(const fs::path& given, const std::string& iteration,
                                           bool with_state) {
  const fs::path path = given.has_filename() ? given : given.parent_path();  // shells add a slash
  if (step_of(path) && is_whole(path)) return of_checkpoint(path.parent_path(), path);
  if (!is_run(path)) return std::nullopt;
  const std::map<int64_t, fs::path> whole = whole_checkpoints(path);
  if (!iteration.empty()) return at_iteration(path, whole, iteration);
  const auto format = weights::detect_format(path);
  std::error_code unknown;
  const bool is_finished = fs::exists(path / "DONE", unknown) && format;
  if (is_finished && !with_state)
    return TrainedRun{path, path, std::nullopt, *format == weights::Format::kPeft};
  if (!whole.empty()) {
    const fs::path last = fs::weakly_canonical(path / "last", unknown);
    const auto newest = std::find_if(whole.begin(), whole.end(), [&](const auto& one) {
      std::error_code other;
      return fs::equivalent(one.second, last, other);
    });
    return of_checkpoint(path, newest == whole.end() ? whole.rbegin()->second : newest->second);
  }
  if (format) return std::nullopt;  // a model beside what a run left of itself
  throw ModelError(
      tr("{}: of a training run that has saved no whole checkpoint yet", path.string()),
      tr("the command that began it goes on with it"));
}

BaseModel base_of(const TrainedRun& trained) {
  const std::string named = weights::load_peft_config(trained.holds).base_model;
  const std::string hint =
      tr("name the base model where it is now, and this with --lora-load: "
         "--load-dir BASE --lora-load {}",
         shell_quoted(trained.run.string()));
  const std::string alone = tr("{}: holds adapters alone", trained.holds.string());
  if (named.empty()) throw ModelError(tr("{}, and does not name their base model", alone), hint);
  BaseModel base;
  base.path = named;
  std::error_code unknown;
  if (!fs::exists(base.path, unknown)) {
    throw ModelError(tr("{}, and the base model they were trained on is missing: {}", alone, named),
                     hint);
  }
  const Json args = args_of(trained.run);
  base.config_dir = json_get<std::string>(args, "hf_config").value_or("");
  for (const char* name : {"tokenizer", "model"}) {
    const std::string place = json_get<std::string>(args, name).value_or("");
    if (!place.empty() && base.fallback_dir.empty() && fs::exists(place, unknown))
      base.fallback_dir = text::directory_of_model(place);
  }
  const std::string then = model_of(trained);
  if (then.empty()) return base;
  const std::string now = model_identity(weights::open_checkpoint_source(
      base.path,
      {.config_dir = base.config_dir, .fallback_dir = base.fallback_dir, .all_tensors = true}));
  if (now == then) return base;
  throw ModelError(tr("{}, and {} is not the base model any more that they were trained on "
                      "(fingerprint {} then, {} now)",
                      alone, named, then, now),
                   hint);
}

}  // namespace danlu::settings
