#include "eval/compare/compare_match.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "base/message.h"
#include "eval/results/wide_text.h"
#include "eval/scoring/python_str.h"

namespace danlu::eval {
namespace {

using Lines = std::vector<const SampleLine*>;

Lines of_filter(const std::vector<SampleLine>& lines, const std::string& filter) {
  Lines some;
  for (const SampleLine& line : lines) {
    if (line.filter == filter) some.push_back(&line);
  }
  return some;
}

std::string row_of(const SampleLine& line) { return line.doc_hash; }

/// What is the same of a row whose right answer was changed.
std::string question_of(const SampleLine& line) {
  return line.prompt_hash.empty() ? "" : line.doc_id.dump() + " " + line.prompt_hash;
}

/// What is the same of a row that is kept and asked in another form.
std::string place_of(const SampleLine& line) {
  if (line.target_hash.empty() || line.doc_id.is_null()) return "";
  return line.doc_id.dump() + " " + line.target_hash;
}

/// The lines of `b` that are the partners of those of `a`; equals are matched in their order.
class Partners {
 public:
  Partners(const Lines& a, const Lines& b) : a_(a), b_(b), found_(a.size()) {}

  /// Matches what has none yet by `key`, where that is not "".
  void match_by(std::string (*key)(const SampleLine&)) {
    std::map<std::string, std::deque<const SampleLine*>> left;
    for (const SampleLine* line : b_) {
      if (!taken_.count(line)) left[key(*line)].push_back(line);
    }
    left.erase("");
    for (size_t i = 0; i < a_.size(); ++i) {
      if (found_[i]) continue;
      const auto same = left.find(key(*a_[i]));
      if (same == left.end() || same->second.empty()) continue;
      found_[i] = same->second.front();
      same->second.pop_front();
      taken_.insert(found_[i]);
    }
  }

  /// Whether both number their rows alike: so do all that are matched, and of those left over that
  /// have the same number three in four have the same right answer, more than chance makes.
  bool has_same_places() const {
    std::map<std::string, const SampleLine*> left;
    for (const SampleLine* line : b_) {
      if (!taken_.count(line)) left[line->doc_id.dump()] = line;
    }
    size_t shared = 0, same = 0;
    for (size_t i = 0; i < a_.size(); ++i) {
      if (found_[i] && found_[i]->doc_id != a_[i]->doc_id) return false;
      const auto there = left.find(a_[i]->doc_id.dump());
      if (found_[i] || there == left.end()) continue;
      ++shared;
      same += there->second->target_hash == a_[i]->target_hash;
    }
    return 4 * same >= 3 * shared;
  }

  size_t count() const { return taken_.size(); }
  const Lines& found() const { return found_; }

 private:
  const Lines &a_, &b_;
  Lines found_;  ///< of a_[i]; null where nothing of b_ is
  std::set<const SampleLine*> taken_;
};

std::string shown(const Json& value) {
  constexpr size_t kShown = 60;
  return value.is_null() ? "-" : cut_to_width(python_str(value), kShown);
}

/// "mmlu_law 5 / 0, mmlu_art 5 / 0 and 55 more".
std::string unlike_of_tasks(const RunFiles& a, const RunFiles& b, const char* section) {
  constexpr int kNamed = 3;
  std::string named;
  int count = 0;
  for (const auto& [task, lines] : a.samples) {
    if (!b.samples.count(task) || a.at(section, task) == b.at(section, task)) continue;
    if (++count > kNamed) continue;
    named += fmt::format("{}{} {} / {}", named.empty() ? "" : ", ", task,
                         shown(a.at(section, task)), shown(b.at(section, task)));
  }
  return count > kNamed ? tr("{} and {} more", named, count - kNamed) : named;
}

}  // namespace

MatchReport match_lines(const std::vector<SampleLine>& a, const std::vector<SampleLine>& b) {
  MatchReport report;
  std::vector<std::string> filters;
  for (const SampleLine& line : a) {
    if (std::find(filters.begin(), filters.end(), line.filter) == filters.end())
      filters.push_back(line.filter);
  }
  for (const std::string& filter : filters) {
    const Lines lines_a = of_filter(a, filter), lines_b = of_filter(b, filter);
    if (lines_b.empty()) continue;
    Partners partners(lines_a, lines_b);
    partners.match_by(row_of);
    partners.match_by(question_of);
    const size_t certain = partners.count();
    if (partners.has_same_places()) partners.match_by(place_of);
    MatchedLines matched{filter, {}};
    for (size_t i = 0; i < lines_a.size(); ++i) {
      if (const SampleLine* found = partners.found()[i])
        matched.pairs.emplace_back(lines_a[i], found);
    }
    if (report.filters.empty()) {
      report.num_items = static_cast<int64_t>(matched.pairs.size());
      report.only_a = static_cast<int64_t>(lines_a.size()) - report.num_items;
      report.only_b = static_cast<int64_t>(lines_b.size()) - report.num_items;
      report.by_place = static_cast<int64_t>(partners.count() - certain);
      for (const auto& [line_a, line_b] : matched.pairs) {
        report.other_prompts += line_a->prompt_hash != line_b->prompt_hash;
        report.other_targets += line_a->target_hash != line_b->target_hash;
      }
    }
    report.filters.push_back(std::move(matched));
  }
  return report;
}

std::vector<std::string> unlike_settings(const RunFiles& a, const RunFiles& b) {
  std::vector<std::string> unlike;
  const auto of_run = [](const RunFiles& run, const char* key) {
    const auto found = run.results.find(key);
    return found == run.results.end() ? Json() : *found;
  };
  for (const char* key : {"style", "system_instruction", "chat_template_sha"}) {
    const Json of_a = of_run(a, key), of_b = of_run(b, key);
    if (of_a != of_b) unlike.push_back(tr("other {}: {} / {}", key, shown(of_a), shown(of_b)));
  }
  for (const char* key : {"limit", "gen_kwargs"}) {
    const Json of_a = a.at("config", key), of_b = b.at("config", key);
    if (of_a != of_b) unlike.push_back(tr("other {}: {} / {}", key, shown(of_a), shown(of_b)));
  }
  for (const char* section : {"n-shot", "versions"}) {
    const std::string tasks = unlike_of_tasks(a, b, section);
    if (!tasks.empty()) unlike.push_back(tr("other {}: {}", section, tasks));
  }
  return unlike;
}

}  // namespace danlu::eval
