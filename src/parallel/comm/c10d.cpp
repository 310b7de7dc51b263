#include "parallel/comm/c10d.h"

#include <ATen/core/Tensor.h>
#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <sys/socket.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/error.h"

namespace danlu::parallel {
namespace c10d_detail {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// Bytes: Gloo of libtorch 1.13 knows no bf16, and sends need no type.
at::Tensor bytes_of(const at::Tensor& flat) { return flat.view(at::kByte); }

class C10dGroup : public Group {
 public:
  C10dGroup(c10::intrusive_ptr<c10d::ProcessGroupGloo> group, std::vector<int64_t> members,
            int64_t rank)
      : group_(std::move(group)), members_(std::move(members)), rank_(rank) {}
  int64_t rank() const override { return rank_; }
  int64_t size() const override { return static_cast<int64_t>(members_.size()); }

 private:
  void do_gather(const at::Tensor& mine, at::Tensor& all) const override {
    const int64_t n = mine.size(0);
    swap(
        "gather", [&](int64_t) { return mine; },
        [&](int64_t from) { return all.narrow(0, from * n, n); });
  }
  void do_exchange(const at::Tensor& all, at::Tensor& theirs) const override {
    const int64_t n = all.size(0) / size();
    swap(
        "exchange", [&](int64_t to) { return all.narrow(0, to * n, n); },
        [&](int64_t from) { return theirs.narrow(0, from * n, n); });
  }
  void do_broadcast(at::Tensor& tensor, int64_t root) const override {
    guarded("broadcast", [&] {
      std::vector<WorkPtr> works;
      for (int64_t peer = 0; peer < size(); ++peer) {
        if (rank_ == root && peer != root) works.push_back(send(tensor, peer));
      }
      if (rank_ != root) works.push_back(receive(tensor, root));
      for (const auto& work : works) work->wait();
    });
  }

  /// Everybody sends something to everybody: receives are posted first, then all goes at once. Sums
  /// are made by the caller, so that they are the same on every transport.
  template <typename Send, typename Receive>
  void swap(const char* what, const Send& to_send, const Receive& to_fill) const {
    guarded(what, [&] {
      std::vector<at::Tensor> kept;  // what is on its way
      std::vector<WorkPtr> works;
      for (int64_t step = 1; step < size(); ++step) {
        kept.push_back(to_fill((rank_ + size() - step) % size()));
        works.push_back(receive(kept.back(), (rank_ + size() - step) % size()));
      }
      for (int64_t step = 1; step < size(); ++step) {
        kept.push_back(to_send((rank_ + step) % size()));
        works.push_back(send(kept.back(), (rank_ + step) % size()));
      }
      to_fill(rank_).copy_(to_send(rank_));
      for (const auto& work : works) work->wait();
    });
  }

  WorkPtr send(const at::Tensor& tensor, int64_t peer) const {
    std::vector<at::Tensor> list{bytes_of(tensor)};
    return group_->send(list, static_cast<int>(peer), 0);
  }
  WorkPtr receive(const at::Tensor& tensor, int64_t peer) const {
    std::vector<at::Tensor> list{bytes_of(tensor)};
    return group_->recv(list, static_cast<int>(peer), 0);
  }

  template <typename Body>
  void guarded(const char* what, const Body& body) const {
    try {
      body();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      const std::string text = error.what();
      throw CommError(tr("[ranks] {} among ranks {} failed: {}", what, fmt::join(members_, ", "),
                         text.substr(0, text.find('\n'))),
                      tr("a rank may have ended or hang: its own log says why"));
    }
  }

  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  std::vector<int64_t> members_;
  int64_t rank_;
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
  C10dWorld(const C10dJob& job, c10::intrusive_ptr<c10d::Store> store)
      : job_(job),
        store_(std::move(store)),
        device_(
            c10d::ProcessGroupGloo::createDeviceForHostname(address_towards(job.master_address))) {}
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

  std::unique_ptr<Group> make_group(const std::vector<int64_t>& ranks) override {
    const int64_t number = made_++;
    const auto mine = std::find(ranks.begin(), ranks.end(), job_.rank);
    if (mine == ranks.end()) return nullptr;
    auto options = c10d::ProcessGroupGloo::Options::create(job_.timeout);
    options->devices.push_back(device_);
    // Groups that share a prefix and not their members hang.
    const std::string prefix = fmt::format("group{}_{}", number, fmt::join(ranks, "_"));
    const auto rank = static_cast<int>(mine - ranks.begin());
    try {
      auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(
          c10::make_intrusive<c10d::PrefixStore>(prefix, store_), rank,
          static_cast<int>(ranks.size()), options);
      return std::make_unique<C10dGroup>(std::move(group), ranks, rank);
    } catch (const std::exception& error) {
      const std::string text = error.what();
      throw CommError(tr("[ranks] ranks {} cannot connect: {}", fmt::join(ranks, ", "),
                         text.substr(0, text.find('\n'))),
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
                      tr("its own error says why"));
    }
  }

  C10dJob job_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::shared_ptr<::gloo::transport::Device> device_;
  int64_t made_ = 0;
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

c10::intrusive_ptr<c10d::Store> connect_store(const C10dJob& job) {
  check_place(job);
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(job.master_port);
  options.isServer = job.rank == 0;
  options.waitWorkers = false;
  options.timeout = job.timeout;
#if TORCH_VERSION_MAJOR >= 2
  options.useLibUV = false;  // Debian's libtorch has none
#endif
  try {
    return c10::make_intrusive<c10d::TCPStore>(job.master_address, options);
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

/// Waits for the others. Errors: CommError naming who did not come.
void meet(const C10dJob& job, c10d::Store& store) {
  store.set(fmt::format("here/{}", job.rank), std::vector<uint8_t>{1});
  const auto end = std::chrono::steady_clock::now() + job.timeout;
  std::vector<int64_t> missing;
  for (int64_t rank = 0; rank < job.size; ++rank) missing.push_back(rank);
  while (true) {
    std::erase_if(missing,
                  [&](int64_t rank) { return store.check({fmt::format("here/{}", rank)}); });
    if (missing.empty()) return;
    if (std::chrono::steady_clock::now() > end) {
      throw CommError(
          tr("[ranks] of {} ranks, these did not come: {}", job.size, fmt::join(missing, ", ")),
          tr("their machines or logs say why; --dist-timeout SECONDS waits longer"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace c10d_detail

std::unique_ptr<World> connect_c10d(const C10dJob& job) {
  // A peer that goes away is an error of the call, not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  auto store = c10d_detail::connect_store(job);
  try {
    c10d_detail::meet(job, *store);
    return std::make_unique<c10d_detail::C10dWorld>(job, std::move(store));
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
