#include "base/failure.h"

#include <charconv>

#include "base/log.h"

namespace danlu {
namespace {

/// The number that stands in `line` where `form` has {}, if all else is the same.
std::optional<int> exit_number_in(std::string_view line, std::string_view form) {
  const size_t place = form.find("{}");
  const std::string_view before = form.substr(0, place), behind = form.substr(place + 2);
  if (!line.starts_with(before) || !line.ends_with(behind)) return std::nullopt;
  if (line.size() <= before.size() + behind.size()) return std::nullopt;
  const std::string_view digits =
      line.substr(before.size(), line.size() - before.size() - behind.size());
  int number = 0;
  const char* end = digits.data() + digits.size();
  const auto [at, error] = std::from_chars(digits.data(), end, number);
  if (error != std::errc() || at != end) return std::nullopt;
  return number;
}

}  // namespace

bool is_stop(ExitCode code) {
  return code == ExitCode::kInterrupted || code == ExitCode::kTerminated ||
         code == ExitCode::kHungUp;
}

void write_failure(ExitCode code, std::string_view what, const std::string& hint) {
  std::string message(what);
  if (!hint.empty()) message += "\n" + tr("hint: {}", hint);
  // A pipe (| tee) hides the exit code.
  const int number = static_cast<int>(code);
  message +=
      "\n" + (is_stop(code) ? tr("STOPPED (exit {})", number) : tr("FAILED (exit {})", number));
  // A rank that leaves speaking to the first is at the level of errors.
  is_stop(code) ? log::write_plain(message) : log::write(log::Level::kError, message);
}

std::optional<int> exit_code_said(std::string_view line) {
  for (const char* form : {"FAILED (exit {})", "STOPPED (exit {})"}) {
    if (const auto number = exit_number_in(line, form)) return number;
    if (const auto number = exit_number_in(line, in_chinese(form))) return number;
  }
  return std::nullopt;
}

}  // namespace danlu
