#include "parallel/comm/c10d.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <sys/socket.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/long_wait.h"
#include "parallel/comm/nccl.h"
#include "parallel/comm/watch.h"

namespace danlu::parallel {
namespace c10d_detail {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// Bytes: Gloo of libtorch 1.13 knows no bf16, and sends need no type.
at::Tensor bytes_of(const at::Tensor& flat) { return flat.view(at::kByte); }

class C10dGroup : public Group {
 public:
  /// gloo carries what lies in host memory; make_nccl() what carries the rest, if something can.
  C10dGroup(c10::intrusive_ptr<Backend> gloo,
            std::function<c10::intrusive_ptr<Backend>()> make_nccl, std::vector<int64_t> members,
            int64_t rank, std::shared_ptr<GroupCalls> calls)
      : gloo_(std::move(gloo)),
        make_nccl_(std::move(make_nccl)),
        members_(std::move(members)),
        rank_(rank),
        calls_(std::move(calls)) {}
  int64_t rank() const override { return rank_; }
  int64_t size() const override { return static_cast<int64_t>(members_.size()); }
  void abort() const override {
    const std::lock_guard lock(mutex_);
    is_aborted_ = true;
    for (const WorkPtr& work : waited_for_) work->abort();
  }

 private:
  void do_rounds(const char* what, const std::vector<Round>& rounds) const override {
    if (rounds.empty()) return;  // of tensors without elements
    guarded(what, [&] {
      std::vector<WorkPtr> under_way, next = begin(rounds.front());
      for (size_t i = 0; i < rounds.size(); ++i) {
        under_way = std::exchange(next, {});
        if (i + 1 < rounds.size()) next = begin(rounds[i + 1]);
        wait_for(under_way);
        if (rounds[i].then) rounds[i].then();
      }
    });
  }

  /// Receives are posted first, then all goes at once.
  std::vector<WorkPtr> begin(const Round& round) const {
    std::vector<WorkPtr> works;
    if (round.sends.empty()) return works;
    if (is_on_card(round)) return {begin_on_card(round)};
    for (int64_t step = 1; step < size(); ++step) {
      const int64_t peer = (rank_ + size() - step) % size();
      const at::Tensor& to_fill = round.receives[static_cast<size_t>(peer)];
      if (to_fill.defined()) works.push_back(receive(to_fill, peer));
    }
    for (int64_t step = 1; step < size(); ++step) {
      const int64_t peer = (rank_ + step) % size();
      const at::Tensor& to_send = round.sends[static_cast<size_t>(peer)];
      if (to_send.defined()) works.push_back(send(to_send, peer));
    }
    return works;
  }

  static bool is_on_card(const Round& round) {
    const auto lies_there = [](const at::Tensor& t) { return t.defined() && t.is_cuda(); };
    return std::any_of(round.sends.begin(), round.sends.end(), lies_there) ||
           std::any_of(round.receives.begin(), round.receives.end(), lies_there);
  }
  /// NCCL's sends and receives wait for each other unless they are given together.
  WorkPtr begin_on_card(const Round& round) const {
    if (!nccl_) nccl_ = make_nccl_();
    at::TensorOptions options;
    for (const Tensors* tensors : {&round.sends, &round.receives}) {
      for (const at::Tensor& tensor : *tensors) {
        if (tensor.defined()) options = tensor.options().dtype(at::kByte);
      }
    }
    Tensors sends, receives;
    for (int64_t peer = 0; peer < size(); ++peer) {
      const auto bytes_or_none = [&](const at::Tensor& tensor) {
        return tensor.defined() && peer != rank_ ? bytes_of(tensor) : at::empty({0}, options);
      };
      sends.push_back(bytes_or_none(round.sends[static_cast<size_t>(peer)]));
      receives.push_back(bytes_or_none(round.receives[static_cast<size_t>(peer)]));
    }
    return nccl_->alltoall(receives, sends);
  }

  WorkPtr send(const at::Tensor& tensor, int64_t peer) const {
    std::vector<at::Tensor> list{bytes_of(tensor)};
    return gloo_->send(list, static_cast<int>(peer), 0);
  }
  WorkPtr receive(const at::Tensor& tensor, int64_t peer) const {
    std::vector<at::Tensor> list{bytes_of(tensor)};
    return gloo_->recv(list, static_cast<int>(peer), 0);
  }

  void wait_for(const std::vector<WorkPtr>& works) const {
    {
      const std::lock_guard lock(mutex_);
      if (is_aborted_) throw CommError(tr("[ranks] given up"));
      waited_for_ = works;
    }
    for (const WorkPtr& work : works) work->wait();
    const std::lock_guard lock(mutex_);
    waited_for_.clear();
    if (is_aborted_) throw CommError(tr("[ranks] given up"));
  }

  template <typename Body>
  void guarded(const char* what, const Body& body) const {
    const GroupCalls::Call call(*calls_, what);
    try {
      body();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      const std::string text = error.what();
      throw CommError(tr("[ranks] {} among {} failed: {}", what, ranks_text(members_),
                         text.substr(0, text.find('\n'))),
                      tr("a rank may have ended or hang: its own log says why"));
    }
  }

  c10::intrusive_ptr<Backend> gloo_;
  std::function<c10::intrusive_ptr<Backend>()> make_nccl_;
  mutable c10::intrusive_ptr<Backend> nccl_;  ///< made when first needed
  std::vector<int64_t> members_;
  int64_t rank_;
  std::shared_ptr<GroupCalls> calls_;
  mutable std::mutex mutex_;
  mutable std::vector<WorkPtr> waited_for_;
  mutable bool is_aborted_ = false;
};

/// The address of the interface that packets to `host` leave by.
std::string address_towards(const std::string& host) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_DGRAM;
  if (::getaddrinfo(host.c_str(), "9", &hints, &found) != 0 || !found) return "127.0.0.1";
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in own{};
  socklen_t size = sizeof(own);
  // Connecting a datagram socket sends nothing.
  const bool known = fd >= 0 && ::connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
                     ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0;
  if (fd >= 0) ::close(fd);
  ::freeaddrinfo(found);
  char text[INET_ADDRSTRLEN] = "127.0.0.1";
  if (known) ::inet_ntop(AF_INET, &own.sin_addr, text, sizeof(text));
  return text;
}

class C10dWorld : public World {
 public:
  C10dWorld(const C10dJob& job, c10::intrusive_ptr<c10d::Store> store,
            std::shared_ptr<RankCalls> calls, std::unique_ptr<Watch> watch)
      : job_(job),
        store_(std::move(store)),
        device_(
            c10d::ProcessGroupGloo::createDeviceForHostname(address_towards(job.master_address))),
        calls_(std::move(calls)),
        watch_(std::move(watch)) {}
  int64_t rank() const override { return job_.rank; }
  int64_t size() const override { return job_.size; }

  void post(const std::string& note) override {
    with_store([&] { store_->set(kNote + note, std::vector<uint8_t>{1}); });
  }
  void wait_for(const std::string& note) override {
    bool posted = false;
    while (!posted) {
      with_store([&] { posted = store_->check({kNote + note}); });
      if (!posted) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }

  void note_step(int64_t step) override { watch_->note_step(step); }
  void give_up(const Error& error) override {
    watch_->give_up(error.code(), error.what(), error.hint());
  }

  std::unique_ptr<Group> make_group(const std::vector<int64_t>& ranks) override {
    const int64_t number = made_++;
    const auto mine = std::find(ranks.begin(), ranks.end(), job_.rank);
    if (mine == ranks.end()) return nullptr;
    // The watch ends what takes longer than the timeout, and says who is to blame.
    auto options = c10d::ProcessGroupGloo::Options::create(job_.timeout + std::chrono::minutes(1));
    options->devices.push_back(device_);
    // Groups that share a prefix and not their members hang.
    const std::string prefix = fmt::format("group{}_{}", number, fmt::join(ranks, "_"));
    const auto rank = static_cast<int>(mine - ranks.begin());
    auto calls = calls_->add(number, ranks);
    const GroupCalls::Call call(*calls, "connect");
    try {
      auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(
          c10::make_intrusive<c10d::PrefixStore>(prefix, store_), rank,
          static_cast<int>(ranks.size()), options);
      const auto nccl = [store = store_, timeout = options->timeout, prefix, rank,
                         size = static_cast<int>(ranks.size())] {
        return make_nccl(c10::make_intrusive<c10d::PrefixStore>("nccl/" + prefix, store), rank,
                         size, timeout);
      };
      return std::make_unique<C10dGroup>(std::move(group), nccl, ranks, rank, calls);
    } catch (const std::exception& error) {
      const std::string text = error.what();
      throw CommError(
          tr("[ranks] {} cannot connect: {}", ranks_text(ranks), text.substr(0, text.find('\n'))),
          tr("every machine must reach the address that the others leave by towards "
             "MASTER_ADDR; look at firewalls and at their logs"));
    }
  }

 private:
  static constexpr const char* kNote = "note/";

  template <typename Use>
  void with_store(const Use& use) const {
    try {
      use();
    } catch (const std::exception&) {
      throw CommError(tr("[ranks] rank 0 is gone: rank {} reaches it no more", job_.rank),
                      tr("was it killed or stopped, or is its machine or network down? Where a "
                         "checkpoint was saved the same command goes on from it"));
    }
  }

  C10dJob job_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::shared_ptr<::gloo::transport::Device> device_;
  std::shared_ptr<RankCalls> calls_;
  int64_t made_ = 0;
  std::unique_ptr<Watch> watch_;  ///< the first to go
};

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
  throw CommError(tr("[ranks] rank 0 cannot listen on {}:{}: another program does",
                     job.master_address, job.master_port),
                  tr("choose another --master_port"));
}

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

/// Says that this rank waits for rank 0, while the store's own call hangs there.
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

 private:
  void say_until_over() {
    LongWait wait;
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, std::chrono::milliseconds(200), [&] { return is_over_; })) {
      if (!wait.is_due()) continue;
      if (fails_) {
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
  std::thread thread_;
};

c10::intrusive_ptr<c10d::Store> connect_store(const C10dJob& job) {
  check_place(job);
  const SaysWhileWaiting says(job);
  try {
    return open_store(job, job.rank == 0);
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

std::unique_ptr<Watch> start_watch(const C10dJob& job, std::shared_ptr<const RankCalls> calls) {
  const double timeout_s = std::chrono::duration<double>(job.timeout).count();
  const auto open = [job]() -> std::shared_ptr<c10d::Store> {
    const auto store = open_store(job, false);
    return {store.get(), [store](c10d::Store*) {}};
  };
  return std::make_unique<Watch>(
      WatchSettings{job.rank, job.size, job.silence_s, timeout_s, job.end}, open, std::move(calls));
}

std::string here(int64_t rank) { return fmt::format("here/{}", rank); }
constexpr const char* kMet = "meeting/over";
constexpr const char* kTwice = "meeting/twice";
constexpr const char* kAbsent = "meeting/absent";
constexpr const char* kDismissed = "meeting/dismissed";  ///< how many know of it

std::string text_at(c10d::Store& store, const std::string& key) {
  const std::vector<uint8_t> bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}

UsageError twice(const std::string& what) {
  return UsageError(what, tr("give every process a RANK of its own, every machine another "
                             "--node_rank; of a job that has lost a process all begin again"));
}

/// Says that this rank is here. Errors: UsageError if another process is this rank, with the places
/// of both: it has come first, and ends too unless the job is at work.
void take_place(const C10dJob& job, c10d::Store& store) {
  const std::string own = tr("{} (process {})", host_name(), ::getpid());
  if (store.add("come/" + here(job.rank), 1) == 1) {
    store.set(here(job.rank), std::vector<uint8_t>{own.begin(), own.end()});
    return;
  }
  const std::string first = text_at(store, here(job.rank));
  const std::string what =
      tr("[ranks] rank {} is there twice: on {} and on {}", job.rank, first, own);
  if (!store.check({kMet})) store.set(kTwice, std::vector<uint8_t>{what.begin(), what.end()});
  throw twice(what);
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

/// Waits for the others. Errors: CommError naming who did not come; as take_place.
void meet(const C10dJob& job, c10d::Store& store) {
  const auto end = std::chrono::steady_clock::now() + job.timeout;
  LongWait wait;
  std::vector<int64_t> missing;
  for (int64_t rank = 0; rank < job.size; ++rank) missing.push_back(rank);
  while (true) {
    std::erase_if(missing, [&](int64_t rank) { return store.check({here(rank)}); });
    if (store.check({kTwice})) throw twice(text_at(store, kTwice));
    if (store.check({kAbsent})) {
      const Json why = parse_json(text_at(store, kAbsent), kAbsent);
      store.add(kDismissed, 1);  // rank 0 may go now, and the store with it
      throw Error(static_cast<ExitCode>(why.at(0).get<int>()), why.at(1), why.at(2));
    }
    if (missing.empty()) break;
    if (std::chrono::steady_clock::now() > end) {
      throw CommError(tr("[ranks] of {} ranks, these did not come: {}", job.size, listed(missing)),
                      tr("their machines or logs say why; --dist-timeout SECONDS waits longer"));
    }
    if (job.speaks && wait.is_due()) {
      log::info("[ranks] waiting for {} of {} ranks: {} ({:.0f} s)", missing.size(), job.size,
                listed(missing), wait.waited_s());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  store.set(kMet, std::vector<uint8_t>{1});
}

/// Of rank 0, which does not come: until all others know, or are not expected any more.
void hold_place(const C10dJob& job, c10d::Store& store) {
  // Less than a launcher grants the ranks of its machine when one of them has failed.
  constexpr std::chrono::seconds kLongest{8};
  const auto end = std::chrono::steady_clock::now() + kLongest;
  LongWait wait;
  while (std::chrono::steady_clock::now() < end) {
    const int64_t unaware = job.size - 1 - store.add(kDismissed, 0);
    if (unaware <= 0) return;
    if (job.speaks && wait.is_due())
      log::info("[ranks] rank 0 fails; waiting to tell {} of {} ranks", unaware, job.size);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace c10d_detail

void say_absent(const C10dJob& job, const Error& why) {
  using namespace c10d_detail;
  C10dJob hurried = job;
  // Rank 0's machine may be started a while after this one.
  hurried.timeout = std::chrono::seconds(job.rank > 0 ? 30 : 3);
  const std::string what =
      tr("[ranks] rank {} on {} does not come: {}", job.rank, host_name(), why.what());
  const std::string text = dump_text({static_cast<int>(why.code()), what, why.hint()});
  try {
    const auto store = [&] {
      std::optional<SaysWhileWaiting> says;
      if (job.rank > 0) says.emplace(hurried, /*fails=*/true);
      return open_store(hurried, /*is_server=*/job.rank == 0);
    }();
    if (!store->check({kAbsent}))
      store->set(kAbsent, std::vector<uint8_t>{text.begin(), text.end()});
    if (job.rank > 0) {
      store->add(kDismissed, 1);
    } else {
      hold_place(job, *store);
    }
  } catch (const std::exception&) {
    log::debug("[ranks] nobody could be told");
  }
}

std::unique_ptr<World> connect_c10d(const C10dJob& job) {
  // A peer that goes away is an error of the call, not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  auto store = c10d_detail::connect_store(job);
  try {
    c10d_detail::take_place(job, *store);
    auto calls = std::make_shared<RankCalls>();
    auto watch = c10d_detail::start_watch(job, calls);
    try {
      c10d_detail::meet(job, *store);
    } catch (const UsageError& error) {
      watch->give_up(error.code(), error.what(), error.hint());  // some may have met already
      throw;
    }
    watch->all_are_there();
    return std::make_unique<c10d_detail::C10dWorld>(job, std::move(store), std::move(calls),
                                                    std::move(watch));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    throw CommError(tr("[ranks] rank {} lost the others while they met: {}", job.rank,
                       text.substr(0, text.find('\n'))),
                    tr("a rank may have ended or hang: its own log says why"));
  }
}

}  // namespace danlu::parallel
