#include "cli/engine_limits.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <future>
#include <system_error>

#include "base/address_space.h"
#include "base/error.h"
#include "base/progress.h"
#include "base/threads.h"

namespace danlu::cli {
namespace {

/// Measured on a model of 36,000 parameters, without the threads' stacks: 713 MiB (init, infer),
/// 1,193 MiB (sft, which also opens DuckDB). OpenBLAS sets aside 128 MiB at the first product that
/// is not tiny (sft's had one), and asks again without end if it does not get them.
constexpr size_t kEngineBytes = size_t{850} << 20;
constexpr size_t kTrainingBytes = size_t{1200} << 20;
/// Threads per thread asked for, likewise measured: OpenBLAS, libgomp and the kernels' team keep
/// one fewer each; pthreadpool, or the measurement of the processor's speed, as many.
constexpr size_t kPools = 4;

/// "" without a limit.
std::string limit_text(int resource, const char* command) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return resource == RLIMIT_NPROC
             ? tr("; {} allows this user {} threads and processes", command, limit.rlim_cur)
             : tr("; {} allows {}", command, format_bytes(limit.rlim_cur));
}

std::string memory_limits() {
  return limit_text(RLIMIT_AS, "ulimit -v") + limit_text(RLIMIT_DATA, "ulimit -d");
}

/// What the process has of it already.
size_t used_address_space() {
  std::ifstream statm("/proc/self/statm");
  size_t pages = 0;
  statm >> pages;
  return pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

size_t stack_bytes() {
  pthread_attr_t attributes;
  size_t bytes = 0;
  if (::pthread_getattr_default_np(&attributes) != 0) return bytes;
  ::pthread_attr_getstacksize(&attributes, &bytes);
  ::pthread_attr_destroy(&attributes);
  return bytes;
}

/// How many of `wanted` threads there can be at the same time.
size_t count_possible_threads(size_t wanted) {
  std::promise<void> enough;
  const std::shared_future<void> signal = enough.get_future().share();
  ThreadGroup threads;
  try {
    while (threads.size() < wanted) threads.start([signal] { signal.wait(); });
  } catch (const std::system_error&) {
    // What was made is the answer.
  } catch (...) {
    enough.set_value();  // those that were made wait for it
    throw;
  }
  enough.set_value();
  return threads.size();
}

}  // namespace

void require_engine_resources(const Command& command, const RankPlace& place) {
  const size_t bytes = command.trains ? kTrainingBytes : kEngineBytes;
  const size_t wanted = default_thread_count(), needed = kPools * wanted + 1;
  const size_t stacks = needed * stack_bytes();
  const size_t least = used_address_space() + bytes + stacks;
  const bool is_there = AddressSpace(bytes + stacks).is_there();
  const AddressSpace libraries(bytes);
  if (!is_there || !libraries.is_there()) {
    throw MemoryError(tr("[engine] danlu {} with {} threads needs at least {} of address space{}",
                         command.name, wanted, format_bytes(least), memory_limits()),
                      wanted > 1 ? tr("raise the limit, with room for the model, or set "
                                      "OMP_NUM_THREADS to fewer")
                                 : tr("raise the limit, with room for the model"));
  }
  if (place.rank == 0) warn_of_many_threads();
  const char* set = std::getenv("OMP_NUM_THREADS");
  const size_t possible = count_possible_threads(needed);
  if (possible == needed) return;
  throw MemoryError(
      tr("[engine] {} threads are needed ({}), and the system makes only {}{}{}", needed,
         set && *set ? fmt::format("OMP_NUM_THREADS={}", set) : tr("{} processors", wanted),
         possible, limit_text(RLIMIT_NPROC, "ulimit -u"), memory_limits()),
      tr("set OMP_NUM_THREADS to fewer, or raise the limit (a container's is pids.max)"));
}

}  // namespace danlu::cli
