#include "eval/sandbox/code_check.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/clock.h"
#include "base/control_group.h"
#include "base/error.h"

namespace danlu::eval {
namespace {

std::string code_field(const Json& doc, const char* name) {
  const auto text = json_get<std::string>(doc, name);
  if (!text) throw DataError(tr("a problem to write code for has no '{}'", name));
  return *text;
}

/// A Python name, or names with dots between; letters beyond ASCII are names' too.
bool is_python_name(const std::string& text) {
  return !text.empty() && !std::isdigit(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return c >= 0x80 || std::isalnum(c) || c == '_' || c == '.';
         });
}

/// As many as have the memory that each may take; at least one.
size_t workers_with_memory(size_t workers, int64_t memory_bytes) {
  const uint64_t available = available_memory_bytes();
  if (available == 0 || memory_bytes <= 0) return workers;
  const auto with_memory = static_cast<size_t>(available / static_cast<uint64_t>(memory_bytes));
  return std::clamp<size_t>(with_memory, 1, std::max<size_t>(workers, 1));
}

/// Executes all, and returns those that were late, ascending, but for those of whom is_sure() says
/// that nothing beside them was why.
std::vector<size_t> judge_beside_others(const CodeSandbox& sandbox,
                                        const std::vector<std::string>& programs, size_t workers,
                                        const std::function<bool(const CodeVerdict&)>& is_sure,
                                        const CodeSandbox::OnVerdict& on_verdict) {
  std::vector<size_t> late;
  workers = workers_with_memory(workers, sandbox.settings().memory_bytes);
  sandbox.run_all(programs, workers, [&](size_t i, const CodeVerdict& verdict) {
    if (verdict.outcome == CodeVerdict::Outcome::kTimedOut && !is_sure(verdict)) {
      late.push_back(i);
    } else {
      on_verdict(i, verdict);
    }
  });
  std::sort(late.begin(), late.end());
  return late;
}

}  // namespace

std::string humaneval_program(const Json& doc, const std::string& solution) {
  const std::string entry_point = code_field(doc, "entry_point");
  if (!is_python_name(entry_point))
    throw DataError(tr("'entry_point' must be the name of a function, got '{}'", entry_point));
  return solution + "\n" + code_field(doc, "test") + "\ncheck(" + entry_point + ")";
}

void judge_programs(const CodeSandbox& sandbox, std::vector<std::string> programs, size_t workers,
                    const CodeSandbox::OnVerdict& on_verdict) {
  const std::vector<size_t> late = judge_beside_others(
      sandbox, programs, workers, [](const CodeVerdict&) { return false; }, on_verdict);
  std::vector<std::string> again;
  for (const size_t i : late) again.push_back(std::move(programs[i]));
  sandbox.run_all(again, 1,
                  [&](size_t i, const CodeVerdict& verdict) { on_verdict(late[i], verdict); });
}

std::vector<size_t> judge_programs_within(const CodeSandbox& sandbox,
                                          std::vector<std::string> programs, size_t workers,
                                          int64_t patience_ms,
                                          const CodeSandbox::OnVerdict& on_verdict) {
  const int64_t sure_ms = sandbox.settings().timeout_ms * 9 / 10;
  std::vector<size_t> late = judge_beside_others(
      sandbox, programs, workers,
      [sure_ms](const CodeVerdict& verdict) { return verdict.cpu_ms >= sure_ms; }, on_verdict);
  const double end_s = steady_now_s() + static_cast<double>(patience_ms) / 1000;
  size_t again = 0;
  for (; again < late.size() && steady_now_s() < end_s; ++again) {
    sandbox.run_all({std::move(programs[late[again]])}, 1,
                    [&](size_t, const CodeVerdict& verdict) { on_verdict(late[again], verdict); });
  }
  late.erase(late.begin(), late.begin() + static_cast<std::ptrdiff_t>(again));
  return late;
}

CodeCheck check_code(const CodeSandbox& sandbox, const std::vector<Json>& problems,
                     const std::vector<CodeSample>& samples, size_t workers,
                     const std::function<void(size_t num_done)>& on_done) {
  std::vector<std::string> programs;
  for (const CodeSample& sample : samples)
    programs.push_back(humaneval_program(problems.at(sample.problem), sample.solution));
  CodeCheck check;
  check.verdicts.resize(samples.size());
  check.counts.resize(problems.size());
  size_t num_done = 0;
  const auto take = [&](size_t i, const CodeVerdict& verdict) {
    PassCount& count = check.counts[samples[i].problem];
    ++count.num_samples;
    count.num_passed += verdict.outcome == CodeVerdict::Outcome::kPassed;
    check.num_timed_out += verdict.outcome == CodeVerdict::Outcome::kTimedOut;
    check.verdicts[i] = verdict;
    if (on_done) on_done(++num_done);
  };
  judge_programs(sandbox, std::move(programs), workers, take);
  return check;
}

}  // namespace danlu::eval
