#include "parallel/comm/meeting.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <exception>
#include <future>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "base/descriptor.h"
#include "base/json.h"
#include "base/log.h"
#include "base/long_wait.h"

namespace danlu::parallel {
namespace {

/// The store of libtorch 1.13 has a thread of its own that nothing catches: a connection that is
/// reset, by a machine that begins anew or another program, would end the process with a signal.
/// The thread stays where it is; the watch finds out who is gone, and says so. The main thread is
/// not the store's: parked, it would be one that works for ever.
void outlive_reset_connections() {
  static const std::terminate_handler before = std::set_terminate([] {
    try {
      if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
    } catch (const std::system_error& error) {
      const bool is_main = ::gettid() == ::getpid();
      while (!is_main && error.code() == std::errc::connection_reset) ::pause();
    } catch (...) {  // not the store's
    }
    before();
  });
}

/// What the store would find out late, and say in its own words. Errors: CommError.
void check_place(const C10dJob& job) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (const int code = ::getaddrinfo(job.master_address.c_str(), nullptr, &hints, &found)) {
    throw CommError(tr("[ranks] MASTER_ADDR {}: {}", job.master_address, ::gai_strerror(code)),
                    tr("an address or name of rank 0's machine that this one knows"));
  }
  ::freeaddrinfo(found);
  if (job.rank > 0) return;
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(static_cast<uint16_t>(job.master_port));
  const bool taken =
      fd >= 0 && ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0 &&
      ::bind(fd, reinterpret_cast<sockaddr*>(&any), sizeof(any)) != 0 && errno == EADDRINUSE;
  if (fd >= 0) ::close(fd);
  if (!taken) return;
  if (job.launcher_port > 0) {
    throw CommError(
        tr("[ranks] rank 0 cannot listen on {}:{}: another program does", job.master_address,
           job.master_port),
        tr("torchrun itself listens on {}, and danlu 1000 beside it: choose another --master_port",
           job.launcher_port));
  }
  throw CommError(tr("[ranks] rank 0 cannot listen on {}:{}: another program does",
                     job.master_address, job.master_port),
                  tr("choose another --master_port"));
}

/// Says that this rank waits for rank 0, while the store's own calls hang there.
class SaysWhileWaiting {
 public:
  explicit SaysWhileWaiting(const C10dJob& job, bool fails = false) : job_(job), fails_(fails) {
    if (job.speaks) thread_ = std::thread([this] { say_until_over(); });
  }
  ~SaysWhileWaiting() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  SaysWhileWaiting(const SaysWhileWaiting&) = delete;
  SaysWhileWaiting& operator=(const SaysWhileWaiting&) = delete;
  /// Something took the connection.
  void reached() { is_reached_ = true; }

 private:
  void say_until_over() {
    LongWait wait;
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, std::chrono::milliseconds(200), [&] { return is_over_; })) {
      if (!wait.is_due()) continue;
      if (is_reached_) {
        log::info(
            "[ranks] rank {} waits for rank 0: what listens at {}:{} does not answer as it "
            "({:.0f} s); is it another program's port?",
            job_.rank, job_.master_address, job_.master_port, wait.waited_s());
      } else if (fails_) {
        log::info("[ranks] rank {} fails; waiting for rank 0 at {}:{} to tell it ({:.0f} s)",
                  job_.rank, job_.master_address, job_.master_port, wait.waited_s());
      } else if (job_.rank > 0) {
        log::info("[ranks] rank {} waits for rank 0 at {}:{} ({:.0f} s)", job_.rank,
                  job_.master_address, job_.master_port, wait.waited_s());
      } else {
        log::info("[ranks] rank 0 does not reach itself at {}:{} ({:.0f} s): is that its machine?",
                  job_.master_address, job_.master_port, wait.waited_s());
      }
    }
  }

  const C10dJob& job_;
  const bool fails_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;
  std::atomic<bool> is_reached_ = false;
  std::thread thread_;
};

using StorePtr = c10::intrusive_ptr<c10d::Store>;

[[noreturn]] void refuse_mute_place(const C10dJob& job) {
  throw CommError(tr("[ranks] rank {} cannot reach rank 0: what listens at {}:{} does not answer "
                     "as it",
                     job.rank, job.master_address, job.master_port),
                  tr("another program may have the port: choose another --master_port"));
}

/// A store of what listens there and answers. libtorch waits for an answer for ever: 1.13 to the
/// first question, 2.x already while it makes the store. Errors: CommError if there is none;
/// std::exception: libtorch's own.
StorePtr open_answering_store(const C10dJob& job, SaysWhileWaiting& says) {
  // libtorch itself says after job.timeout that nobody listens.
  constexpr std::chrono::seconds kLater{5};
  struct Asked {
    std::promise<StorePtr> store;
    std::promise<void> answer;
  };
  auto asked = std::make_shared<Asked>();
  std::future<StorePtr> opened = asked->store.get_future();
  std::future<void> answered = asked->answer.get_future();
  // Left behind where it hangs: nothing ends the calls.
  std::thread([job, asked] {
    StorePtr store;
    try {
      store = open_store(job, job.rank == 0);
    } catch (...) {
      return asked->store.set_exception(std::current_exception());
    }
    asked->store.set_value(store);
    try {
      store->check({"anybody"});
      asked->answer.set_value();
    } catch (...) {
      asked->answer.set_exception(std::current_exception());
    }
  }).detach();
  if (opened.wait_for(job.timeout + kLater) != std::future_status::ready) refuse_mute_place(job);
  const StorePtr store = opened.get();
  says.reached();
  if (answered.wait_for(job.timeout) != std::future_status::ready) refuse_mute_place(job);
  answered.get();
  return store;
}

std::string here(int64_t rank) { return fmt::format("here/{}", rank); }
constexpr const char* kOutcome = "meeting/outcome";
constexpr const char* kSize = "meeting/size";
constexpr const char* kDismissed = "meeting/dismissed";  ///< how many know that it has failed

std::string text_at(c10d::Store& store, const std::string& key) {
  const std::vector<uint8_t> bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}

std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

/// True for the one rank of all that comes first to what the key names.
bool is_first_to(c10d::Store& store, const std::string& key) {
  return store.add("come/" + key, 1) == 1;
}

/// How the meeting ends: as the first rank that knows an end says, for all. Null: all have met.
Json outcome(c10d::Store& store, const Json& own) {
  if (is_first_to(store, kOutcome)) store.set(kOutcome, bytes_of(dump_text(own)));
  return parse_json(text_at(store, kOutcome), kOutcome);
}

Json outcome_of(const Error& why) {
  return {static_cast<int>(why.code()), std::string(why.what()), why.hint()};
}

/// Rank 0, with whom the store goes, waits until the others that may come know.
void hold_place(const C10dJob& job, c10d::Store& store, int64_t others) {
  // Less than a launcher grants the ranks of its machine when one of them has failed.
  constexpr std::chrono::seconds kLongest{8};
  const auto end = std::chrono::steady_clock::now() + kLongest;
  LongWait wait;
  while (std::chrono::steady_clock::now() < end) {
    const int64_t unaware = others - store.add(kDismissed, 0);
    if (unaware <= 0) return;
    if (job.speaks && wait.is_due())
      log::info("[ranks] rank 0 fails; waiting to tell {} of {} ranks", unaware, job.size);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

/// Says that this rank knows that the meeting has failed; rank 0 waits for the others that may
/// come.
void leave(const C10dJob& job, c10d::Store& store, int64_t others) {
  if (job.rank == 0) {
    hold_place(job, store, others);
  } else {
    store.add(kDismissed, 1);
  }
}

/// Errors: `why`, of the ranks that have come too unless they have met.
[[noreturn]] void refuse(const C10dJob& job, c10d::Store& store, const UsageError& why) {
  outcome(store, outcome_of(why));
  leave(job, store, job.size - 1);
  throw why;
}

/// Errors: UsageError if another rank came first and means a job of another size.
void require_same_size(const C10dJob& job, c10d::Store& store, const std::string& own_place) {
  if (is_first_to(store, kSize))
    return store.set(kSize, bytes_of(dump_text({job.size, own_place})));
  const Json first = parse_json(text_at(store, kSize), kSize);
  if (first.at(0) == job.size) return;
  const std::string elsewhere = first.at(1);
  refuse(job, store,
         UsageError(tr("[ranks] the job has {} ranks on {} and {} on {}", job.size, own_place,
                       first.at(0).get<int64_t>(), elsewhere),
                    tr("every machine needs the same --nproc and --nnodes (WORLD_SIZE); "
                       "machines with unlike numbers of processes: --hostfile")));
}

/// "1, 4-7"
std::string listed(const std::vector<int64_t>& ascending) {
  std::string list;
  for (size_t i = 0, last = 0; i < ascending.size(); i = last + 1) {
    last = i;
    while (last + 1 < ascending.size() && ascending[last + 1] == ascending[last] + 1) ++last;
    list += fmt::format("{}{}", list.empty() ? "" : ", ", ascending[i]);
    if (last > i) list += fmt::format("{}{}", last == i + 1 ? ", " : "-", ascending[last]);
  }
  return list;
}

}  // namespace

c10::intrusive_ptr<c10d::Store> open_store(const C10dJob& job, bool is_server) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(job.master_port);
  options.isServer = is_server;
  options.waitWorkers = false;
  options.timeout = job.timeout;
#if TORCH_VERSION_MAJOR >= 2
  options.useLibUV = false;  // Debian's libtorch has none
#endif
  auto store = c10::make_intrusive<c10d::TCPStore>(job.master_address, options);
  return c10::make_intrusive<c10d::PrefixStore>(fmt::format("life{}", job.restarts), store);
}

c10::intrusive_ptr<c10d::Store> connect_store(const C10dJob& job) {
  check_place(job);
  outlive_reset_connections();
  SaysWhileWaiting says(job);
  try {
    return open_answering_store(job, says);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    const std::string place = fmt::format("{}:{}", job.master_address, job.master_port);
    if (job.rank == 0) {
      throw CommError(
          tr("[ranks] rank 0 cannot listen on {}: {}", place, text.substr(0, text.find('\n'))),
          tr("another program may have the port: choose another --master_port"));
    }
    throw CommError(
        tr("[ranks] rank {} cannot reach rank 0 at {}: {}", job.rank, place,
           text.substr(0, text.find('\n'))),
        tr("are MASTER_ADDR and MASTER_PORT those of rank 0's machine, and does it run?"));
  }
}

void take_place(const C10dJob& job, c10d::Store& store) {
  const std::string own = tr("{} (process {})", host_name(), ::getpid());
  require_same_size(job, store, own);
  if (is_first_to(store, here(job.rank))) return store.set(here(job.rank), bytes_of(own));
  const std::string first = text_at(store, here(job.rank));
  refuse(job, store,
         UsageError(tr("[ranks] rank {} is there twice: on {} and on {}", job.rank, first, own),
                    tr("give every process a RANK of its own, every machine another "
                       "--node_rank; of a job that has lost a process all begin again")));
}

void meet(const C10dJob& job, c10d::Store& store) {
  const auto end = std::chrono::steady_clock::now() + job.timeout;
  LongWait wait;
  std::vector<int64_t> missing;
  for (int64_t rank = 0; rank < job.size; ++rank) missing.push_back(rank);
  Json over;
  while (true) {
    std::erase_if(missing, [&](int64_t rank) { return store.check({here(rank)}); });
    if (missing.empty() || store.check({kOutcome})) {
      over = outcome(store, nullptr);
      break;
    }
    if (std::chrono::steady_clock::now() > end) {
      over = outcome(
          store, outcome_of(CommError(
                     tr("[ranks] of {} ranks, these did not come: {}", job.size, listed(missing)),
                     tr("their machines or logs say why; --dist-timeout SECONDS waits "
                        "longer"))));
      break;
    }
    if (job.speaks && wait.is_due()) {
      log::info("[ranks] waiting for {} of {} ranks: {} ({:.0f} s)", missing.size(), job.size,
                listed(missing), wait.waited_s());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  if (over.is_null()) return;
  const bool is_late = std::chrono::steady_clock::now() > end;
  leave(job, store, job.size - 1 - (is_late ? static_cast<int64_t>(missing.size()) : 0));
  throw Error(static_cast<ExitCode>(over.at(0).get<int>()), over.at(1), over.at(2));
}

void say_absent(const C10dJob& job, const Error& why) {
  C10dJob hurried = job;
  // Rank 0's machine may be started a while after this one.
  hurried.timeout = std::chrono::seconds(job.rank > 0 ? 30 : 3);
  const std::string what =
      tr("[ranks] rank {} on {} does not come: {}", job.rank, host_name(), why.what());
  const Error absent(why.code(), what, why.hint());
  try {
    outlive_reset_connections();
    const auto store = [&] {
      hurried.speaks = job.speaks && job.rank > 0;
      SaysWhileWaiting says(hurried, /*fails=*/true);
      return open_answering_store(hurried, says);
    }();
    outcome(*store, outcome_of(absent));
    leave(job, *store, job.size - 1);
  } catch (const std::exception&) {
    log::debug("[ranks] nobody could be told");
  }
}

}  // namespace danlu::parallel
