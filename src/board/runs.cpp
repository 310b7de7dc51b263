#include "board/runs.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/clock.h"
#include "base/file.h"
#include "board/run_files.h"

namespace danlu::board {
namespace {

constexpr int kDeepest = 8;
constexpr size_t kMostVisited = 50'000;
constexpr size_t kSparkPoints = 48;
constexpr size_t kMostGone = 10'000;
constexpr double kStateEvery_s = 2;

Json or_null(std::optional<double> value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

/// What a run writes below itself holds no runs.
bool is_passed_over(const std::string& name) {
  return name.starts_with('.') || name.starts_with("checkpoint-") || name == "images" ||
         name == "runs" || name == "megatron";
}

/// Few enough points for a small picture: the means of stretches.
Json spark_of(const Metrics& metrics) {
  Json points = Json::array();
  auto found = metrics.curves().find("loss");
  if (found == metrics.curves().end()) found = metrics.curves().find("reward");
  if (found == metrics.curves().end()) return points;
  const std::vector<double>& values = found->second.values;
  const size_t stretches = std::min(kSparkPoints, values.size());
  for (size_t s = 0; s < stretches; ++s) {
    double sum = 0, count = 0;
    for (size_t i = s * values.size() / stretches; i < (s + 1) * values.size() / stretches; ++i) {
      if (std::isnan(values[i])) continue;
      sum += values[i];
      ++count;
    }
    points.push_back(count > 0 ? Json(sum / count) : Json(nullptr));
  }
  return points;
}

int64_t stamp_ms(const std::optional<FileStamp>& stamp) {
  return stamp ? stamp->changed_ns / 1'000'000 : 0;
}

/// What args.json names, as a short text: a word, or the words of a list.
std::string short_text(const Json& args, const char* key) {
  const auto found = args.find(key);
  if (found == args.end()) return "";
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) return "";
  std::string text;
  for (const Json& word : *found) {
    if (word.is_string()) text += (text.empty() ? "" : ", ") + word.get<std::string>();
  }
  return text;
}

std::string id_of(const std::filesystem::path& directory) {
  return fmt::format("{:016x}", hash_bytes(directory.string()));
}

void search_below(const std::filesystem::path& root, const std::filesystem::path& directory,
                  int depth, size_t& visited, Runs::Places& places) {
  if (depth > kDeepest) return;
  if (visited++ > kMostVisited || places.runs.size() >= Runs::kMostRuns) {
    places.is_cut = true;
    return;
  }
  if (is_run(directory)) places.runs.emplace_back(root, directory);
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator(directory, error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    std::error_code unknown;
    // Links to directories, such as a run's `last`, may lead anywhere and in circles.
    if (!std::filesystem::is_directory(it->symlink_status(unknown))) continue;
    if (!is_passed_over(it->path().filename().string()))
      search_below(root, it->path(), depth + 1, visited, places);
  }
}

}  // namespace

struct Runs::Run {
  Run(std::string id_, std::string name_, std::filesystem::path path_)
      : id(std::move(id_)),
        name(std::move(name_)),
        path(std::move(path_)),
        lines(path / "logging.jsonl") {}

  std::string id, name;
  std::filesystem::path path;
  LineFollower lines;
  Metrics metrics;
  RunStanding standing;
  double next_state_s = 0;
  std::optional<FileStamp> log, jsonl, args, samples;
  bool is_described = false;
  Json about = Json::object();  ///< of its settings
  std::string checkpoints;      ///< their names, to see that they have changed
  uint64_t num_samples_changes = 0, num_checkpoint_changes = 0;
  uint64_t change = 0;

  /// Reads on. `is_new`: something that the summary says may be another.
  bool read_on(size_t& budget, bool& has_more);
  bool describe();
  bool look_at_state();
  Json summary() const;
};

bool Runs::Run::describe() {
  const auto now = stamp_of(path / "args.json");
  if (is_described && now == args) return false;
  is_described = true;
  args = now;
  const Json settings = settings_of(path);
  about = {{"verb", settings["verb"]}};
  for (const char* key : {"model", "dataset", "tuner", "stage", "rlhf_type"})
    about[key] = short_text(settings["args"], key);
  return true;
}

bool Runs::Run::look_at_state() {
  const double now = steady_now_s();
  if (now < next_state_s) return false;
  next_state_s = now + kStateEvery_s;
  const int64_t changed = std::max(jsonl ? jsonl->changed_ns : 0, log ? log->changed_ns : 0);
  const bool complete = metrics.max_steps() > 0 && metrics.last_step() >= metrics.max_steps();
  RunStanding seen = standing_of(path, changed, complete);
  const bool is_new = seen.state != standing.state || seen.holder != standing.holder ||
                      seen.exit_code != standing.exit_code;
  standing = std::move(seen);
  std::string names;
  for (const Json& checkpoint : checkpoints_of(path)) {
    if (checkpoint["complete"].get<bool>()) names += checkpoint["name"].get<std::string>() + " ";
  }
  if (names == checkpoints) return is_new;
  checkpoints = names;
  ++num_checkpoint_changes;
  return true;
}

bool Runs::Run::read_on(size_t& budget, bool& has_more) {
  bool is_new = describe();
  const auto follow = [&](std::optional<FileStamp>& known, const char* name) {
    const auto now = stamp_of(path / name);
    if (now == known) return false;
    known = now;
    return true;
  };
  is_new = follow(log, "train.log") || is_new;
  if (follow(samples, "samples.jsonl")) {
    ++num_samples_changes;
    is_new = true;
  }
  const bool jsonl_grew = follow(jsonl, "logging.jsonl");
  const bool still_has_more = budget == 0;
  if (budget > 0) {
    LineFollower::News news = lines.read_on(budget);
    if (news.begins_anew) metrics.clear();
    size_t taken = 0;
    for (const std::string& line : news.lines) {
      metrics.add(line);
      taken += line.size() + 1;
    }
    budget -= std::min(budget, taken);
    has_more = has_more || news.has_more;
    is_new = is_new || news.begins_anew || !news.lines.empty();
  }
  has_more = has_more || (still_has_more && jsonl_grew);
  if (is_new) next_state_s = 0;
  return look_at_state() || is_new;
}

Json Runs::Run::summary() const {
  Json last = Json::object();
  for (const char* key : {"loss", "eval_loss", "learning_rate", "grad_norm", "tokens_per_second",
                          "epoch", "token_acc", "reward"}) {
    if (const auto value = metrics.last(key)) last[key] = or_null(value);
  }
  return {{"id", id},
          {"name", name},
          {"path", path.string()},
          {"state", state_name(standing.state)},
          {"exit_code", standing.exit_code ? Json(*standing.exit_code) : Json(nullptr)},
          {"holder", standing.holder},
          {"step", metrics.last_step()},
          {"max_steps", metrics.max_steps()},
          {"remaining", standing.state == RunState::kRunning ? metrics.remaining() : ""},
          {"begun", stamp_ms(args)},
          {"changed", std::max(stamp_ms(jsonl), stamp_ms(log))},
          {"about", about},
          {"last", last},
          {"best_eval_loss", or_null(metrics.least("eval_loss"))},
          {"spark", spark_of(metrics)},
          {"generation", metrics.generation()},
          {"log_bytes", log ? log->size_bytes : 0},
          {"has_samples", samples.has_value()},
          {"samples_change", num_samples_changes},
          {"checkpoints_change", num_checkpoint_changes}};
}

Runs::Runs(std::vector<std::filesystem::path> roots) : roots_(std::move(roots)) {}

Runs::~Runs() = default;

const Runs::Run* Runs::find(const std::string& id) const {
  const auto found = runs_.find(id);
  return found == runs_.end() ? nullptr : found->second.get();
}

void Runs::add(const std::filesystem::path& root, const std::filesystem::path& directory) {
  const std::string id = id_of(directory);
  if (runs_.contains(id)) return;
  gone_.erase(id);
  std::string name = directory.lexically_relative(root).string();
  if (name.empty() || name == ".") name = directory.filename().string();
  if (roots_.size() > 1 && directory != root) name = (root.filename() / name).string();
  runs_[id] = std::make_unique<Run>(id, name, directory);
}

Runs::Places Runs::search(const std::vector<std::filesystem::path>& roots) {
  Places places;
  size_t visited = 0;
  for (const std::filesystem::path& root : roots) search_below(root, root, 0, visited, places);
  return places;
}

void Runs::take(const Places& places) {
  is_cut_ = places.is_cut;
  std::set<std::string> there;
  for (const auto& [root, directory] : places.runs) there.insert(id_of(directory));
  for (auto it = runs_.begin(); it != runs_.end();) {
    if (there.contains(it->first)) {
      ++it;
      continue;
    }
    if (gone_.size() > kMostGone) gone_.clear();
    gone_[it->first] = ++change_;
    it = runs_.erase(it);
  }
  for (const auto& [root, directory] : places.runs) add(root, directory);
}

bool Runs::read_on() {
  bool has_more = false;
  size_t budget = kAtOnce;
  for (auto& [id, run] : runs_) {
    if (run->read_on(budget, has_more) || run->change == 0) run->change = ++change_;
  }
  return has_more;
}

Json Runs::list() const {
  Json runs = Json::array(), roots = Json::array();
  for (const auto& [id, run] : runs_) runs.push_back(run->summary());
  for (const auto& root : roots_) roots.push_back(root.string());
  return {{"change", change_}, {"roots", roots}, {"cut", is_cut_}, {"runs", runs}};
}

std::optional<Json> Runs::changes(uint64_t since) const {
  if (since >= change_) return std::nullopt;
  Json runs = Json::array(), gone = Json::array();
  for (const auto& [id, run] : runs_) {
    if (run->change > since) runs.push_back(run->summary());
  }
  for (const auto& [id, change] : gone_) {
    if (change > since) gone.push_back(id);
  }
  return Json{{"change", change_}, {"runs", runs}, {"gone", gone}};
}

std::optional<Json> Runs::run(const std::string& id) const {
  const Run* run = find(id);
  if (!run) return std::nullopt;
  Json json = run->summary();
  json["checkpoints"] = checkpoints_of(run->path);
  json["results"] = results_of(run->path);
  json["logs"] = log_names(run->path);
  json["curves"] = Json::array();
  for (const auto& [name, curve] : run->metrics.curves()) json["curves"].push_back(name);
  return json;
}

std::optional<Json> Runs::curves(const std::string& id, const CurveQuery& query) const {
  const Run* run = find(id);
  if (!run) return std::nullopt;
  const Metrics& metrics = run->metrics;
  const bool is_known = query.generation == metrics.generation();
  const int64_t from = is_known ? std::max(query.from, query.after) : query.from;
  Json curves = Json::object();
  for (const auto& [name, curve] : metrics.curves()) {
    const bool wanted = query.names.empty() || std::find(query.names.begin(), query.names.end(),
                                                         name) != query.names.end();
    if (wanted) curves[name] = curve_json(curve, from, query.to, query.most_points);
  }
  return Json{{"id", id},
              {"generation", metrics.generation()},
              {"continues", is_known},
              {"last_step", metrics.last_step()},
              {"curves", curves}};
}

std::optional<Json> Runs::settings(const std::string& id) const {
  const Run* run = find(id);
  if (!run) return std::nullopt;
  return settings_of(run->path);
}

std::optional<Json> Runs::log(const std::string& id, const std::string& name,
                              size_t most_bytes) const {
  const Run* run = find(id);
  if (!run) return std::nullopt;
  return log_tail(run->path, name, most_bytes);
}

std::optional<Json> Runs::samples(const std::string& id, uint64_t before, size_t count) const {
  const Run* run = find(id);
  if (!run) return std::nullopt;
  return samples_of(run->path, before, count);
}

}  // namespace danlu::board
