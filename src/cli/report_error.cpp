// Errors as the person at the terminal sees them: what, hint, exit code.
#include <fmt/format.h>

#include <filesystem>
#include <new>
#include <string_view>
#include <system_error>

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

Hint memory_hint(const Command* running) {
  if (running && running->trains) {
    return {"lower the batch size or the sequence length, or use a smaller dtype",
            "请减小批大小或序列长度，或使用更小的数据类型"};
  }
  if (running && !running->run) {
    return {"use a smaller dtype, shorter texts or fewer at a time",
            "请使用更小的数据类型，或缩短文本、减少同时处理的数量"};
  }
  return {
      "give it less at a time (smaller files, fewer threads), or raise the limit (ulimit -v, the "
      "control group's)",
      "请减少单次输入（更小的文件、更少的线程），或提高内存限制（ulimit -v 或控制组）"};
}

}  // namespace

int report_current_error(const Command* running) {
  const Hint bug{"this is a fault of danlu; run it with DANLU_DEBUG=1 and report what it prints",
                 "这是 danlu 的缺陷；请用 DANLU_DEBUG=1 重新运行并反馈输出"};
  try {
    throw;
  } catch (const Error& e) {
    const bool ours = e.code() == ExitCode::kInternal && e.hint().en.empty();
    return report(e.code(), e.what(), ours ? bug : e.hint());
  } catch (const std::bad_alloc&) {
    return report(ExitCode::kMemory, "out of memory", memory_hint(running));
  } catch (const std::filesystem::filesystem_error& e) {
    return report(ExitCode::kIo,
                  fmt::format("{}: {}", e.path1().string(), first_line(e.code().message())), {});
  } catch (const std::system_error& e) {
    // std::thread says no more; fmt::print says what could not be written.
    if (e.code() != std::errc::resource_unavailable_try_again)
      return report(ExitCode::kIo, first_line(e.what()), {});
    return report(
        ExitCode::kMemory, "the system does not allow another thread",
        {"lower OMP_NUM_THREADS or the number of workers, or raise the limit (ulimit -u, "
         "ulimit -v, pids.max of the control group)",
         "请减小 OMP_NUM_THREADS 或工作线程数，或提高限制（ulimit -u、ulimit -v、控制组的 "
         "pids.max）"});
  } catch (const std::exception& e) {
    const std::string what = first_line(e.what());
    if (what.find("can't allocate memory") != what.npos) {
      return report(ExitCode::kMemory, "out of memory: " + what, memory_hint(running));
    }
    return report(ExitCode::kInternal, "[internal] " + what, bug);
  } catch (...) {
    return report(ExitCode::kInternal, "[internal] an exception without a text", bug);
  }
}

}  // namespace danlu::cli
