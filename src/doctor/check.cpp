#include "doctor/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/error.h"
#include "base/nearest_name.h"

namespace danlu::doctor {
namespace {

/// kNotHere is no worse than anything: it is said of what is not looked at.
int severity(Verdict verdict) {
  switch (verdict) {
    case Verdict::kNotHere:
      return 0;
    case Verdict::kOk:
      return 1;
    case Verdict::kWarning:
      return 2;
    case Verdict::kFailed:
      return 3;
  }
  return 3;
}

std::string joined(const std::string& left, const std::string& right) {
  if (left.empty() || right.empty()) return left + right;
  return left + "; " + right;
}

Finding run_guarded(const Check& check, const SystemRoots& roots) {
  try {
    return check.run(roots);
  } catch (const std::exception& error) {
    return {Verdict::kFailed, error.what(), ""};
  }
}

std::string_view shown_verdict(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return translated("ok");
    case Verdict::kWarning:
      return translated("warning");
    case Verdict::kFailed:
      return translated("FAILED");
    case Verdict::kNotHere:
      return translated("not here");
  }
  return "?";
}

size_t count_of(const std::vector<Result>& results, Verdict verdict) {
  return static_cast<size_t>(
      std::count_if(results.begin(), results.end(),
                    [&](const Result& result) { return result.finding.verdict == verdict; }));
}

}  // namespace

void Finding::add(Verdict other, const std::string& also_read, const std::string& also_do) {
  if (severity(other) > severity(verdict)) verdict = other;
  read = joined(read, also_read);
  const bool is_said = ("; " + remedy + "; ").find("; " + also_do + "; ") != std::string::npos;
  if (!is_said) remedy = joined(remedy, also_do);
}

Finding Finding::not_here(std::string why) { return {Verdict::kNotHere, std::move(why), ""}; }

std::vector<Result> examine(const SystemRoots& roots, const std::vector<std::string>& only) {
  std::vector<std::string> names;
  for (const Check& check : checks()) names.emplace_back(check.name);
  for (const std::string& name : only) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    const auto near = nearest_name(name, names);
    throw UsageError(tr("[doctor] there is no check '{}'", name),
                     near ? tr("did you mean {}?", *near)
                          : tr("the checks: {}", fmt::format("{}", fmt::join(names, ", "))));
  }
  std::vector<Result> results;
  for (const Check& check : checks()) {
    if (!only.empty() && std::find(only.begin(), only.end(), check.name) == only.end()) continue;
    results.push_back({check.name, run_guarded(check, roots)});
  }
  return results;
}

const char* verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kWarning:
      return "warning";
    case Verdict::kFailed:
      return "failed";
    case Verdict::kNotHere:
      return "not_here";
  }
  return "?";
}

std::string describe(const std::vector<Result>& results) {
  size_t width = 0;
  for (const Result& result : results) width = std::max(width, result.name.size());
  std::string out;
  std::set<std::string> said;  // what helps against several things
  for (const Result& result : results) {
    out += fmt::format("{:<8} {:<{}}  {}\n", shown_verdict(result.finding.verdict), result.name,
                       width, result.finding.read);
    if (!result.finding.remedy.empty() && said.insert(result.finding.remedy).second)
      out += fmt::format("{:<8} {:<{}}  → {}\n", "", "", width, result.finding.remedy);
  }
  return out + tr("{} ok, {} warnings, {} failed, {} not here\n", count_of(results, Verdict::kOk),
                  count_of(results, Verdict::kWarning), count_of(results, Verdict::kFailed),
                  count_of(results, Verdict::kNotHere));
}

bool has_failed(const std::vector<Result>& results) {
  return count_of(results, Verdict::kFailed) > 0;
}

}  // namespace danlu::doctor
