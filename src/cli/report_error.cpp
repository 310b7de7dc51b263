// Errors as the person at the terminal sees them: what, hint, exit code.
#include <fmt/format.h>

#include <filesystem>
#include <new>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"

namespace danlu::cli {
namespace {

/// Engine errors carry a stack trace below their first line; DANLU_DEBUG=1 shows it.
std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

int report(ExitCode code, std::string_view what, const Hint& hint) {
  std::string message(what);
  const std::string& text = log::speaks_chinese() && !hint.zh.empty() ? hint.zh : hint.en;
  if (!text.empty()) message += "\nhint: " + text;
  // Ctrl-C is what the user wanted: a message, not an error.
  const bool asked_for =
      code == ExitCode::kInterrupted || code == ExitCode::kTerminated || code == ExitCode::kHungUp;
  log::write(asked_for ? log::Level::kInfo : log::Level::kError, message);
  return static_cast<int>(code);
}

}  // namespace

int report_current_error() {
  const Hint bug{"this is a fault of danlu; run it with DANLU_DEBUG=1 and report what it prints",
                 "这是 danlu 的缺陷；请用 DANLU_DEBUG=1 重新运行并反馈输出"};
  const Hint memory{"lower the batch size or the sequence length, or use a smaller dtype",
                    "请减小批大小或序列长度，或使用更小的数据类型"};
  try {
    throw;
  } catch (const Error& e) {
    const bool ours = e.code() == ExitCode::kInternal && e.hint().en.empty();
    return report(e.code(), e.what(), ours ? bug : e.hint());
  } catch (const std::bad_alloc&) {
    return report(ExitCode::kMemory, "out of memory", memory);
  } catch (const std::filesystem::filesystem_error& e) {
    return report(ExitCode::kIo, e.what(), {});
  } catch (const std::exception& e) {
    const std::string what = first_line(e.what());
    if (what.find("can't allocate memory") != what.npos) {
      return report(ExitCode::kMemory, "out of memory: " + what, memory);
    }
    return report(ExitCode::kInternal, "[internal] " + what, bug);
  } catch (...) {
    return report(ExitCode::kInternal, "[internal] an exception without a text", bug);
  }
}

}  // namespace danlu::cli
