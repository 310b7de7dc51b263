#include "train/rollouts/rollout_journal.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/sum.h>
#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "models/training_memory.h"
#include "parallel/agree.h"

namespace danlu::train {
namespace {

namespace fs = std::filesystem;

/// Whose journal a file is, by its name.
struct JournalName {
  int64_t rollout = 0, rank = 0;
};

/// Nothing of other names than "rollout-12.rank-0".
std::optional<JournalName> parsed_name(const std::string& name) {
  JournalName found;
  const auto take = [&](const char*& at, std::string_view word, int64_t& number) {
    const char* end = name.data() + name.size();
    if (!std::string_view(at, static_cast<size_t>(end - at)).starts_with(word)) return false;
    const auto [behind, problem] = std::from_chars(at + word.size(), end, number);
    at = behind;
    return problem == std::errc();
  };
  const char* at = name.data();
  const bool is_one = take(at, "rollout-", found.rollout) && take(at, ".rank-", found.rank);
  if (!is_one || at != name.data() + name.size()) return std::nullopt;
  return found;
}

/// A line is its content after a number that says whether it is whole.
std::string line_of(const Json& content) {
  const std::string text = dump_text(content);
  return fmt::format("{:016x} {}\n", hash_bytes(text), text);
}

/// Nothing of a line that was cut or damaged.
std::optional<Json> content_of_line(const std::string& line) {
  constexpr size_t kDigits = 16;
  if (line.size() <= kDigits) return std::nullopt;
  const std::string text = line.substr(kDigits + 1);
  if (line != fmt::format("{:016x} {}", hash_bytes(text), text)) return std::nullopt;
  return parse_json(text, "a journal");
}

}  // namespace

RolloutJournal::RolloutJournal(const fs::path& directory, const std::string& origin, int64_t rank,
                               int64_t ranks, const parallel::Group& holders)
    : folder_(directory / kJournalFolder),
      origin_(origin),
      rank_(rank),
      ranks_(ranks),
      holders_(&holders) {}

fs::path RolloutJournal::file_of(int64_t number) const {
  return folder_ / fmt::format("rollout-{}.rank-{}", number, rank_);
}

void RolloutJournal::read(const fs::path& file, const Json& head) {
  uint64_t whole = 0;
  {
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);) {
      // One without its end is still being written.
      const std::optional<Json> content = lines.eof() ? std::nullopt : content_of_line(line);
      if (!content || (whole == 0 && *content != head)) break;
      whole += line.size() + 1;
      if (content->contains("name"))
        known_[content->at("name").get<std::string>()] = content->at("content");
    }
  }
  std::error_code ignored;
  if (fs::exists(file, ignored)) fs::resize_file(file, whole, ignored);
}

void RolloutJournal::give_up(const fs::path& file) {
  log::warning("[rollout] {} cannot be written: a run that is killed draws its answers again",
               file.string());
  folder_.clear();
}

void RolloutJournal::begin(int64_t number, const std::string& weights) {
  known_.clear();
  out_ = std::ofstream();
  if (!holders_) return;
  if (holders_->rank() == 0 && !folder_.empty()) open(number, weights);
  if (holders_->size() == 1) return;
  Json told = Json::object();
  for (const auto& [name, content] : known_) told[name] = content;
  told = parse_json(parallel::text_from(*holders_, 0, dump_text(told)), "a journal");
  for (const auto& [name, content] : told.items()) known_[name] = content;
}

void RolloutJournal::open(int64_t number, const std::string& weights) {
  std::error_code ignored;
  if (!fs::exists(folder_.parent_path(), ignored)) return;
  fs::create_directory(folder_, ignored);
  const fs::path file = file_of(number);
  const Json head{{"rollout", number},
                  {"origin", origin_},
                  {"weights", weights},
                  {"rank", rank_},
                  {"ranks", ranks_}};
  read(file, head);
  const bool is_new = !fs::exists(file, ignored) || fs::file_size(file, ignored) == 0;
  out_.open(file, std::ios::app);
  if (is_new) out_ << line_of(head);
  if (!out_.flush()) give_up(file);
}

const Json* RolloutJournal::find(const std::string& name) const {
  const auto found = known_.find(name);
  return found == known_.end() ? nullptr : &found->second;
}

void RolloutJournal::add(const std::string& name, const Json& content) {
  known_[name] = content;
  if (folder_.empty() || !out_.is_open()) return;
  out_ << line_of({{"name", name}, {"content", content}});
  if (!out_.flush()) give_up(folder_);
}

void RolloutJournal::forget_before(int64_t first) const {
  if (folder_.empty() || holders_->rank() != 0) return;
  std::error_code ignored;
  for (const fs::path& file : journals_of(folder_.parent_path())) {
    const JournalName name = parsed_name(file.filename().string()).value();
    if (name.rank == rank_ && name.rollout < first) fs::remove(file, ignored);
  }
}

std::vector<fs::path> journals_of(const fs::path& run_directory) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(run_directory / kJournalFolder, ignored)) {
    if (parsed_name(entry.path().filename().string())) found.push_back(entry.path());
  }
  return found;
}

void remove_journals(const fs::path& run_directory) {
  std::error_code ignored;
  for (const fs::path& file : journals_of(run_directory)) fs::remove(file, ignored);
  fs::remove(run_directory / kJournalFolder, ignored);  // if nothing else is in it
}

std::string fingerprint_of_trained(const models::CausalLM& model, const parallel::Group& holders) {
  model.memory().settle();
  std::string found;
  for (const parallel::Unit& unit : model.memory().store()->units()) {
    if (!unit.trainable || unit.shard.numel() == 0) continue;
    const at::Tensor on_host = unit.shard.detach().to(at::kCPU).contiguous();
    const at::Tensor bits = on_host.view(on_host.element_size() == 2 ? at::kShort : at::kInt);
    found += fmt::format("{:x}.", at::sum(bits, at::kLong).item<int64_t>());
  }
  std::string all;
  for (const std::string& of_rank : parallel::texts_of_all(holders, found)) all += of_rank + " ";
  return fmt::format("{:016x}", hash_bytes(all));
}

}  // namespace danlu::train
