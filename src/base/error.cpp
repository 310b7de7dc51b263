#include "base/error.h"

#include <fmt/format.h>

#include <filesystem>
#include <new>
#include <string_view>
#include <system_error>

#include "base/failure_reader.h"

namespace danlu {
namespace {

template <ExitCode... kCodes>
void throw_one_of(const Error& error) {
  ((error.code() == kCodes ? throw ErrorOf<kCodes>(error.what(), error.hint()) : void()), ...);
}

/// What the tensor engine throws has a stack trace below its first line.
std::string first_line_of(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

FailureReader reader_of_failures = nullptr;

}  // namespace

void set_failure_reader(FailureReader reader) { reader_of_failures = reader; }

void throw_as_kind(const Error& error) {
  using enum ExitCode;
  throw_one_of<kInternal, kUsage, kData, kModel, kDevice, kMemory, kComm, kIo, kNumeric, kHungUp,
               kTerminated, kInterrupted>(error);
  throw error;
}

Error current_error() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return MemoryError(tr("out of memory"));
  } catch (const std::filesystem::filesystem_error& error) {
    return IoError(
        fmt::format("{}: {}", error.path1().string(), first_line_of(error.code().message())));
  } catch (const std::system_error& error) {
    // std::thread says no more; fmt::print says what could not be written.
    if (error.code() != std::errc::resource_unavailable_try_again)
      return IoError(first_line_of(error.what()));
    return MemoryError(tr("the system does not allow another thread"),
                       tr("lower OMP_NUM_THREADS or the number of workers, or raise the limit "
                          "(ulimit -u, ulimit -v, pids.max of the control group)"));
  } catch (const std::exception& error) {
    const std::string what = first_line_of(error.what());
    // libtorch's allocator has no type of its own for it.
    if (what.find("can't allocate memory") != what.npos)
      return MemoryError(tr("out of memory: {}", what));
    if (const auto known = reader_of_failures ? reader_of_failures(what) : std::nullopt)
      return *known;
    return InternalError(tr("[internal] {}", what));
  } catch (...) {
    return InternalError(tr("[internal] an exception without a text"));
  }
}

}  // namespace danlu
