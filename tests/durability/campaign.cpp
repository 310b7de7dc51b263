#include "durability/campaign.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>

#include "base/json.h"
#include "cli/run_program.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;

std::string content_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// --- what a loss of power leaves
// ------------------------------------------------------------------

/// Builds directory `inode` below `to` from what kill_at.cpp recorded in `store`. `built`: where
/// the files are; one that has two names is one.
void build_synced(const fs::path& store, const std::string& inode, const fs::path& to,
                  std::map<std::string, fs::path>& built) {
  fs::create_directories(to);
  const std::string names = content_of(store / ("d-" + inode));
  auto next = [&, at = size_t{0}]() mutable -> std::string {
    const size_t begin = at, end = names.find('\0', at);
    if (end == names.npos) return "";
    at = end + 1;
    return names.substr(begin, end - begin);
  };
  for (std::string entry = next(); !entry.empty(); entry = next()) {
    const size_t space = entry.find(' ', 2);
    const std::string of = entry.substr(2, space - 2);
    const fs::path path = to / entry.substr(space + 1);
    if (entry[0] == 'd') build_synced(store, of, path, built);
    if (entry[0] == 'l') fs::create_symlink(next(), path);
    if (entry[0] != 'f') continue;
    if (const auto [at, is_new] = built.emplace(of, path); !is_new) {
      fs::create_hard_link(at->second, path);
    } else {
      std::ofstream(path, std::ios::binary) << content_of(store / ("f-" + of));
    }
  }
}

// --- what is compared
// -----------------------------------------------------------------------------

/// Keys whose values a clock, the machine's load, the system or another key of this list decides.
bool is_of_the_clock(const std::string& key) {
  static const std::set<std::string> kKeys = {
      "elapsed_time", "remaining_time", "memory(GiB)", "host_memory(GiB)", "train_speed(s/it)",
      "train_speed(iter/s)", "time/rollout", "time/judging", "time/logprobs", "time/critic",
      "tokens_per_second", "visual_tokens_per_second", "text_tokens_per_second",
      "samples_per_second", "mfu", "data_wait", "eval_runtime", "eval_samples_per_second",
      "eval_steps_per_second", "train_runtime", "train_samples_per_second",
      "train_steps_per_second", "train_seconds", "date", "total_evaluation_time_seconds",
      // Memory is counted in a process's first step; what other threads hold then is chance.
      "counted",
      // A port that was free, and the name of a job.
      "master_port", "job", "save",
      // Checkpoints name the size and sum of files that hold such keys.
      "trainer_state.json", "args.json"};
  return kKeys.count(key) > 0;
}

void remove_clock(Json& json) {
  if (json.is_object()) {
    for (auto it = json.begin(); it != json.end();)
      it = is_of_the_clock(it.key()) ? json.erase(it) : std::next(it);
  }
  if (json.is_structured()) {
    for (Json& item : json) remove_clock(item);
  }
}

std::string without_clock(const std::string& lines) {
  std::istringstream in(lines);
  std::string result;
  for (std::string line; std::getline(in, line);) {
    Json json = Json::parse(line, nullptr, false);
    if (json.is_discarded()) return result + "not JSON: " + line;
    remove_clock(json);
    result += json.dump() + "\n";
  }
  return result;
}

/// A run of `danlu eval` has its time in its files' names. Of two that differ in it alone one stays
/// a difference.
fs::path without_time(const fs::path& name, const Tree& tree) {
  static const std::regex kTime("_\\d{4}-\\d\\d-\\d\\dT\\d\\d-\\d\\d-\\d\\d\\.\\d{6}");
  const fs::path timeless =
      name.parent_path() / std::regex_replace(name.filename().string(), kTime, "_TIME");
  return timeless != name && tree.count(timeless) ? name : timeless;
}

bool is_log(const std::string& file) {
  return file == "train.log" || (file.starts_with("rank-") && file.ends_with(".log"));
}

}  // namespace

Tree tree_of(const fs::path& root) {
  Tree tree;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    const fs::path name = without_time(entry.path().lexically_relative(root), tree);
    const std::string file = name.filename();
    std::string& content = tree[name];
    if (entry.is_symlink()) {
      content = "-> " + fs::read_symlink(entry.path()).string();
    } else if (entry.is_directory()) {
      content = "dir";
    } else if (file.starts_with("events.out.tfevents.")) {
      tree.erase(name);  // one a session, named after time and process
      tree[name.parent_path() / "events"] = "";
    } else if (is_log(file) || file.ends_with(".png") || file.ends_with(".svg")) {
      content = "";  // of every session; of speeds
    } else if (file == "logging.jsonl") {
      content = without_clock(content_of(entry.path()));
    } else if (file.ends_with(".json") || file == "DONE") {
      Json json = Json::parse(content_of(entry.path()), nullptr, false);
      remove_clock(json);
      content = json.dump(1);
    } else {
      content = content_of(entry.path());
    }
  }
  return tree;
}

std::string differences(const Tree& expected, const Tree& found) {
  std::string lines;
  for (const auto& [path, content] : expected) {
    const auto at = found.find(path);
    if (at == found.end()) {
      lines += "  missing: " + path + "\n";
    } else if (at->second != content) {
      const auto [a, b] =
          std::mismatch(content.begin(), content.end(), at->second.begin(), at->second.end());
      const auto from = static_cast<size_t>(a - content.begin());
      const size_t shown = from < 60 ? 0 : from - 60;
      lines += "  differs: " + path + " at " + std::to_string(from) + "\n    expected …" +
               content.substr(shown, 120) + "\n    found    …" +
               at->second.substr(std::min(shown, at->second.size()), 120) + "\n";
    }
  }
  for (const auto& [path, content] : found)
    if (!expected.count(path)) lines += "  left: " + path + "\n";
  return lines;
}

Campaign::Campaign(Command command, fs::path directory)
    : command_(std::move(command)), directory_(std::move(directory)), root_(directory_ / "root") {
  for (std::string& argument : command_.arguments) {
    if (const size_t at = argument.find("ROOT"); at != argument.npos)
      argument.replace(at, 4, root_.string());
  }
  make_directory();
  if (const int code = run(0, Loss::kNothing); code != 0)
    throw std::runtime_error(command_.name + " ends with " + std::to_string(code) + ":\n" +
                             last_output_);
  whole_ = tree_of(root_);
  std::ifstream(directory_ / "count", std::ios::binary)
      .read(reinterpret_cast<char*>(&operations_), sizeof operations_);
}

void Campaign::make_directory() const {
  for (const char* name : {"root", "synced"}) {
    fs::remove_all(directory_ / name);
    fs::create_directories(directory_ / name);
  }
  if (!command_.before.empty()) fs::copy(command_.before, root_, fs::copy_options::recursive);
}

int Campaign::run(uint64_t kill_at, Loss loss) {
  fs::remove(directory_ / "count");
  ProgramSettings settings;
  settings.environment = {{"OMP_NUM_THREADS", "1"},
                          {"DANLU_CACHE", root_ / "cache"},
                          {"LD_PRELOAD", DANLU_BUILD_DIR "/libdanlu_kill_at.so"},
                          {"DANLU_KILL_ROOT", root_},
                          {"DANLU_KILL_COUNT", directory_ / "count"},
                          {"DANLU_KILL_AT", std::to_string(kill_at)}};
  settings.timeout_s = 600;  // for a machine that has much else to do
  if (loss == Loss::kPower) settings.environment["DANLU_KILL_SYNCED"] = directory_ / "synced";
  const ProgramResult result = run_danlu(command_.arguments, settings);
  last_output_ = result.err;
  return result.exit_code;
}

std::string Campaign::try_kill(uint64_t at, Loss loss) {
  make_directory();
  const int killed = run(at, loss);
  if (killed == 128 + 9) ++kills_;
  if (killed != 128 + 9 && killed != 0)
    return "  ended with " + std::to_string(killed) + " before it was killed:\n" + last_output_;
  if (killed != 0 && loss == Loss::kPower) {
    const fs::path left = directory_ / "left";
    struct stat info{};
    ::stat(root_.c_str(), &info);
    std::map<std::string, fs::path> built;
    build_synced(directory_ / "synced", std::to_string(info.st_ino), left, built);
    fs::remove_all(root_);
    fs::rename(left, root_);
  }
  const int again = run(0, Loss::kNothing);
  const std::string found = differences(whole_, tree_of(root_));
  const bool refuses_what_is_whole = again == 2 && command_.refuses_its_result && found.empty();
  if (again != 0 && !refuses_what_is_whole) {
    return "  given again it ends with " + std::to_string(again) + ":\n" + last_output_ + found;
  }
  return found;
}

}  // namespace danlu::test
