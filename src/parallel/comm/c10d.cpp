#include "parallel/comm/c10d.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "base/descriptor.h"
#include "base/error.h"
#include "device/npu.h"
#include "parallel/comm/hccl.h"
#include "parallel/comm/meeting.h"
#include "parallel/comm/nccl.h"
#include "parallel/comm/watch.h"

namespace danlu::parallel {
namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// Bytes: Gloo of libtorch 1.13 knows no bf16, and sends need no type.
at::Tensor tensor_bytes(const at::Tensor& flat) { return flat.view(at::kByte); }

class C10dGroup : public Group {
 public:
  using MakeOnCard = std::function<c10::intrusive_ptr<Backend>(const at::Device& device)>;
  /// gloo carries what lies in host memory; make_on_card() what carries what lies on such devices,
  /// if something can.
  C10dGroup(c10::intrusive_ptr<Backend> gloo, MakeOnCard make_on_card, std::vector<int64_t> members,
            int64_t rank, std::shared_ptr<GroupCalls> calls)
      : gloo_(std::move(gloo)),
        make_on_card_(std::move(make_on_card)),
        members_(std::move(members)),
        rank_(rank),
        calls_(std::move(calls)) {}
  int64_t rank() const override { return rank_; }
  int64_t size() const override { return static_cast<int64_t>(members_.size()); }
  /// Connects what carries tensors on such devices now, instead of when it is first needed.
  void connect_cards(const at::Device& device) const { on_card(device); }
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
    const auto lies_there = [](const at::Tensor& t) { return t.defined() && !t.is_cpu(); };
    return std::any_of(round.sends.begin(), round.sends.end(), lies_there) ||
           std::any_of(round.receives.begin(), round.receives.end(), lies_there);
  }
  const c10::intrusive_ptr<Backend>& on_card(const at::Device& device) const {
    if (!on_card_) on_card_ = make_on_card_(device);
    return on_card_;
  }
  /// NCCL's and HCCL's sends and receives wait for each other unless they are given together.
  WorkPtr begin_on_card(const Round& round) const {
    at::TensorOptions options;
    for (const Tensors* tensors : {&round.sends, &round.receives}) {
      for (const at::Tensor& tensor : *tensors) {
        if (tensor.defined()) options = tensor.options().dtype(at::kByte);
      }
    }
    Tensors sends, receives;
    for (int64_t peer = 0; peer < size(); ++peer) {
      const auto bytes_or_none = [&](const at::Tensor& tensor) {
        return tensor.defined() && peer != rank_ ? tensor_bytes(tensor) : at::empty({0}, options);
      };
      sends.push_back(bytes_or_none(round.sends[static_cast<size_t>(peer)]));
      receives.push_back(bytes_or_none(round.receives[static_cast<size_t>(peer)]));
    }
    return on_card(options.device())->alltoall(receives, sends);
  }

  WorkPtr send(const at::Tensor& tensor, int64_t peer) const {
    std::vector<at::Tensor> list{tensor_bytes(tensor)};
    return gloo_->send(list, static_cast<int>(peer), 0);
  }
  WorkPtr receive(const at::Tensor& tensor, int64_t peer) const {
    std::vector<at::Tensor> list{tensor_bytes(tensor)};
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
  MakeOnCard make_on_card_;
  mutable c10::intrusive_ptr<Backend> on_card_;  ///< made when first needed
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
  void wait_for(const std::string& note, double longest_pause_s) override {
    bool posted = false;
    // What comes soon is not waited for longer than it takes; what takes hours is asked for seldom.
    for (double pause_s = 0.001;; pause_s = std::min(2 * pause_s, longest_pause_s)) {
      with_store([&] { posted = store_->check({kNote + note}); });
      if (posted) return;
      std::this_thread::sleep_for(std::chrono::duration<double>(pause_s));
    }
  }
  void forget(const std::string& note) override {
    with_store([&] { store_->deleteKey(kNote + note); });
  }

  void note_step(int64_t step) override { watch_->note_step(step); }
  void give_up(const Error& error) override {
    watch_->give_up(error.code(), error.what(), error.hint());
  }
  void before_end(std::function<void()> tell) override { watch_->before_end(std::move(tell)); }

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
      const auto on_card = [store = store_, timeout = options->timeout, prefix, rank, calls,
                            size = static_cast<int>(ranks.size())](const at::Device& device) {
        auto own = c10::make_intrusive<c10d::PrefixStore>("card/" + prefix, store);
        return device.type() == c10::DeviceType::PrivateUse1
                   ? make_hccl(std::move(own), rank, size, device.index(), calls)
                   : make_nccl(std::move(own), rank, size, timeout);
      };
      auto made = std::make_unique<C10dGroup>(std::move(group), on_card, ranks, rank, calls);
      // HCCL connects one group after the other, so all ranks do it in the order of the groups.
      if (device::npu_is_open() && ranks.size() > 1) {
        made->connect_cards(
            {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device::npu_index())});
      }
      return made;
    } catch (const Error&) {
      throw;
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
                         "checkpoint or answers were saved the same command goes on from them"));
    }
  }

  C10dJob job_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::shared_ptr<::gloo::transport::Device> device_;
  std::shared_ptr<RankCalls> calls_;
  int64_t made_ = 0;
  std::unique_ptr<Watch> watch_;  ///< the first to go
};

std::unique_ptr<Watch> start_watch(const C10dJob& job, std::shared_ptr<const RankCalls> calls) {
  const double timeout_s = std::chrono::duration<double>(job.timeout).count();
  const auto open = [job]() -> std::shared_ptr<c10d::Store> {
    const auto store = open_store(job, /*is_server=*/false);
    return {store.get(), [store](c10d::Store*) {}};
  };
  return std::make_unique<Watch>(
      WatchSettings{job.rank, job.size, job.silence_s, timeout_s, job.end}, open, std::move(calls));
}

/// Who is woken runs when there is a place for it, instead of at once in place of who woke it.
/// Gloo's thread spins while another thread of its process holds a connection's lock, and that
/// thread is the one that has just woken the peer: where threads share processors, half of their
/// time went into that. Threads that begin later do the same.
void let_wakers_go_on() {
  const sched_param none{};
  if (::sched_getscheduler(0) == SCHED_OTHER) ::sched_setscheduler(0, SCHED_BATCH, &none);
}

}  // namespace

std::unique_ptr<World> connect_c10d(const C10dJob& job) {
  let_wakers_go_on();
  // A peer that goes away is an error of the call, not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  allow_most_descriptors();
  auto store = connect_store(job);
  try {
    take_place(job, *store);
    auto calls = std::make_shared<RankCalls>();
    auto watch = start_watch(job, calls);
    meet(job, *store);
    watch->all_are_there();
    return std::make_unique<C10dWorld>(job, std::move(store), std::move(calls), std::move(watch));
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
