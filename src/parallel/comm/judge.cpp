#include "parallel/comm/judge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/json.h"

namespace danlu::parallel {
namespace {

std::string exchange_of(const CallReport& call) {
  return tr("{} among {}", call.what, ranks_text(call.ranks));
}

std::string step_of(const RankReport& report) {
  return report.step > 0 ? tr("step {}", report.step) : tr("before the first step");
}

const CallReport* present_call(const RankReport& report) {
  const auto found = std::find_if(report.calls.begin(), report.calls.end(),
                                  [](const CallReport& call) { return !call.what.empty(); });
  return found == report.calls.end() ? nullptr : &*found;
}

bool has_arrived(const RankReport& report, const CallReport& at) {
  return std::any_of(report.calls.begin(), report.calls.end(), [&](const CallReport& call) {
    return call.group == at.group && call.begun >= at.begun;
  });
}

}  // namespace

std::string ranks_text(const std::vector<int64_t>& ranks) {
  const std::string list = fmt::format("{}", fmt::join(ranks, std::string(translated(", "))));
  return ranks.size() == 1 ? tr("rank {}", list) : tr("ranks {}", list);
}

std::string RankReport::text() const {
  Json list = Json::array();
  for (const CallReport& call : calls)
    list.push_back({call.group, call.ranks, call.begun, call.what, call.for_s});
  return dump_text({beat, host, process, step, left, list, lost});
}

RankReport RankReport::from_text(const std::string& text) {
  const Json json = parse_json(text, "a rank's report");
  RankReport report{json.at(0), json.at(1), json.at(2), json.at(3), json.at(4), {}, json.at(6)};
  for (const Json& call : json.at(5))
    report.calls.push_back({call.at(0), call.at(1), call.at(2), call.at(3), call.at(4)});
  return report;
}

std::string Verdict::text() const { return dump_text({static_cast<int>(code), what, hint, rank}); }

Verdict Verdict::from_text(const std::string& text) {
  const Json json = parse_json(text, "a verdict");
  return {static_cast<ExitCode>(json.at(0).get<int>()), json.at(1), json.at(2), json.at(3)};
}

Judge::Judge(int64_t size, double silence_s, double timeout_s)
    : silence_s_(silence_s), timeout_s_(timeout_s), ranks_(static_cast<size_t>(size)) {}

void Judge::hear(int64_t rank, RankReport report) {
  std::optional<Heard>& heard = ranks_[static_cast<size_t>(rank)];
  if (heard && heard->report.beat == report.beat) return;
  heard = Heard{std::move(report), 0};
}

void Judge::expect_all() {
  for (auto& heard : ranks_) {
    if (!heard) heard.emplace();
  }
}

std::optional<Verdict> Judge::judge(double seconds) {
  for (auto& heard : ranks_) {
    if (heard && !heard->report.left) heard->silent_s += seconds;
  }
  if (auto verdict = find_silent()) return verdict;
  if (auto verdict = find_all_lost()) return verdict;
  return find_waiting();
}

std::optional<Verdict> Judge::find_all_lost() const {
  std::vector<std::string> words;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const auto& heard = ranks_[rank];
    if (!heard || heard->report.lost.empty()) return std::nullopt;
    words.push_back(fmt::format("{}: {}", name_of(static_cast<int64_t>(rank)), heard->report.lost));
  }
  return Verdict{.what = tr("[ranks] every rank lost the others: {}", fmt::join(words, "; ")),
                 .hint = tr("the machines or cards no longer reach each other, or one of them "
                            "hangs: their logs say which")};
}

bool Judge::are_others_gone() const {
  return std::all_of(ranks_.begin() + 1, ranks_.end(),
                     [](const std::optional<Heard>& heard) { return heard && heard->report.left; });
}

std::optional<Verdict> Judge::find_silent() const {
  std::optional<int64_t> longest;
  std::vector<int64_t> others;  // of the same machine, as a rule
  const auto silence_of = [&](int64_t rank) {
    const auto& heard = ranks_[static_cast<size_t>(rank)];
    return heard && !heard->report.left ? heard->silent_s : 0;
  };
  const auto count = static_cast<int64_t>(ranks_.size());
  for (int64_t rank = 0; rank < count; ++rank) {
    if (silence_of(rank) > (longest ? silence_of(*longest) : silence_s_)) longest = rank;
  }
  if (!longest) return std::nullopt;
  for (int64_t rank = 0; rank < count; ++rank) {
    if (rank != *longest && silence_of(rank) > silence_s_ / 2) others.push_back(rank);
  }
  std::string last = place_of(*longest);
  if (const std::string waiting = waiting_for(*longest); !waiting.empty()) last += "; " + waiting;
  if (!others.empty()) last += "; " + tr("silent too: {}", ranks_text(others));
  return Verdict{
      .what = tr("[ranks] {} is gone: nothing was heard of it for {:g} s; when it was "
                 "last heard: {}",
                 name_of(*longest), silence_s_, last),
      .hint = tr("was it killed or stopped, or is its machine or network down? Where "
                 "a checkpoint or answers were saved the same command goes on from them")};
}

std::optional<Verdict> Judge::find_waiting() const {
  const RankReport* waiting = nullptr;
  const CallReport* at = nullptr;
  for (const auto& heard : ranks_) {
    if (!heard || heard->report.left) continue;
    for (const CallReport& call : heard->report.calls) {
      if (call.what.empty() || call.for_s <= timeout_s_ || (at && at->for_s >= call.for_s))
        continue;
      waiting = &heard->report;
      at = &call;
    }
  }
  if (!at) return std::nullopt;
  std::vector<int64_t> arrived;
  std::vector<std::string> missing;
  for (const int64_t rank : at->ranks) {
    const auto& heard = ranks_[static_cast<size_t>(rank)];
    if (heard && has_arrived(heard->report, *at)) {
      arrived.push_back(rank);
    } else {
      missing.push_back(fmt::format("{} ({})", name_of(rank), place_of(rank)));
    }
  }
  return Verdict{
      .what = tr("[ranks] {}, {}: it did not end within {:g} s; arrived: {}; did not arrive: {}",
                 exchange_of(*at), step_of(*waiting), timeout_s_, fmt::join(arrived, ", "),
                 missing.empty() ? tr("none, the network may be at fault")
                                 : fmt::format("{}", fmt::join(missing, ", "))),
      .hint = tr("their own logs say what they do; --dist-timeout SECONDS waits longer")};
}

std::string Judge::name_of(int64_t rank) const {
  const auto& heard = ranks_[static_cast<size_t>(rank)];
  if (!heard || heard->report.beat == 0) return tr("rank {}", rank);
  return tr("rank {} on {} (process {})", rank, heard->report.host, heard->report.process);
}

std::string Judge::place_of(int64_t rank) const {
  const auto& heard = ranks_[static_cast<size_t>(rank)];
  if (!heard || heard->report.beat == 0) return tr("never heard");
  const CallReport* call = present_call(heard->report);
  return fmt::format("{}{}{}", step_of(heard->report), translated(", "),
                     call ? exchange_of(*call) : tr("between exchanges"));
}

std::string Judge::waiting_for(int64_t rank) const {
  for (size_t other = 0; other < ranks_.size(); ++other) {
    if (!ranks_[other] || static_cast<int64_t>(other) == rank) continue;
    const RankReport& report = ranks_[other]->report;
    for (const CallReport& call : report.calls) {
      const bool member = std::count(call.ranks.begin(), call.ranks.end(), rank) > 0;
      if (call.what.empty() || !member) continue;
      return tr("rank {} waits in {}, {}", other, exchange_of(call), step_of(report));
    }
  }
  return "";
}

}  // namespace danlu::parallel
