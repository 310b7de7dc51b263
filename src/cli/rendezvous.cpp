#include "cli/rendezvous.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/free_port.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/long_wait.h"

namespace danlu::cli {
namespace rendezvous {

constexpr double kPulseSeconds = 1;
constexpr double kSilenceSeconds = 15;  ///< after which machine 0 is asked anew
constexpr double kFirstSeconds = 1800;  ///< in which machines that are started by hand come
constexpr double kMuteSeconds = 5;      ///< in which a launcher says who it is
constexpr double kTwiceSeconds = 8;     ///< in which the end of a launcher that died is known
constexpr size_t kLongestLine = 1 << 16;

/// A connection that speaks lines; an empty one is a sign of life.
class Line {
 public:
  explicit Line(int fd) : fd_(fd) {}
  ~Line() { reset(); }
  Line(Line&& other) noexcept : fd_(std::exchange(other.fd_, -1)), got_(std::move(other.got_)) {}
  Line& operator=(Line&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(got_, other.got_);
    return *this;
  }
  int fd() const { return fd_; }
  bool send(const std::string& line) const {
    const std::string text = line + "\n";
    return ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
           static_cast<ssize_t>(text.size());
  }
  /// Takes what has come; false when nothing more will.
  bool receive() {
    char buffer[4096];
    const ssize_t got = ::recv(fd_, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    got_.append(buffer, static_cast<size_t>(got));
    return got > 0 && got_.size() < kLongestLine;
  }
  std::optional<std::string> next() {
    const size_t end = got_.find('\n');
    if (end == got_.npos) return std::nullopt;
    std::string line = got_.substr(0, end);
    got_.erase(0, end + 1);
    return line;
  }

 private:
  void reset() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

  int fd_ = -1;
  std::string got_;
};

bool is_ready(int fd, short events, int milliseconds) {
  pollfd place{fd, events, 0};
  return ::poll(&place, 1, milliseconds) > 0;
}

int listen_on(int64_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int yes = 1;
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(static_cast<uint16_t>(port));
  if (fd >= 0 && ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0 &&
      ::bind(fd, reinterpret_cast<sockaddr*>(&any), sizeof(any)) == 0 &&
      ::listen(fd, SOMAXCONN) == 0)
    return fd;
  const std::string why = std::strerror(errno);
  if (fd >= 0) ::close(fd);
  throw CommError(tr("[launch] machine 0 cannot listen on port {}: {}", port, why),
                  tr("choose another --master_port"));
}

/// -1: not now.
int connect_to(const std::string& address, int64_t port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  if (const int code =
          ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found)) {
    // A cluster may not know the name yet.
    static std::atomic<bool> is_said = false;
    if (!is_said.exchange(true))
      log::warning("[launch] --master_addr {}: {}; trying again", address, ::gai_strerror(code));
    return -1;
  }
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  constexpr int kMilliseconds = 2000;
  int error = 0;
  socklen_t size = sizeof(error);
  const bool met =
      fd >= 0 && (::connect(fd, found->ai_addr, found->ai_addrlen) == 0 ||
                  (errno == EINPROGRESS && is_ready(fd, POLLOUT, kMilliseconds) &&
                   ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0));
  ::freeaddrinfo(found);
  if (met) return fd;
  if (fd >= 0) ::close(fd);
  return -1;
}

/// What a launcher says of itself and of the job that it means.
struct Machine {
  int64_t number = 0;     ///< among all
  int64_t processes = 1;  ///< its own
  int64_t world = 1;      ///< of all machines
  std::string host, place;
  std::string id;  ///< another one for every launcher
};

/// A launcher that is connected to machine 0.
struct Guest {
  Line line;
  std::optional<Machine> machine = {};  ///< unknown until it has said it
  double came = steady_now_s();
  double since = came;      ///< when it first came, by whatever connection
  bool takes_part = false;  ///< in the present life, and does not wait
  bool took_part = false;   ///< in one
};

Json refusal(ExitCode code, const std::string& what, const std::string& hint) {
  return {{"refused", {static_cast<int>(code), what, hint}}};
}

UsageError twice(int64_t machine, const std::string& first, const std::string& second) {
  return UsageError(tr("[launch] machine {} is there twice: {} and {}", machine, first, second),
                    tr("give every machine another --node_rank"));
}

/// This launcher, for messages.
std::string own_place() { return tr("{} (process {})", host_name(), ::getpid()); }

struct Server {
  int listener = -1;
  JobPlace place;

  std::vector<Guest> guests;
  std::map<int64_t, std::string> hosts;  ///< of machines that were seen
  int64_t life = 0;
  double first_came = 0;  ///< when machine 0 did
  const std::string job = new_job_name();
  std::atomic<bool> over = false;
  std::thread thread;

  void serve();
  void welcome();
  /// False: it is gone, or is no launcher of this job.
  bool hear(Guest& guest);
  bool seat(Guest& guest, Machine machine);
  void pulse();
  void refuse_twice();
  /// The launcher with this number that came first, if there are several.
  Guest* first_of(int64_t machine);
  /// The one that waits for the next life, and is known to be the machine.
  Guest* find(int64_t machine);
  void decide();
  void begin_life(const std::map<int64_t, int64_t>& first_rank, int64_t world,
                  const std::string& late);
  std::vector<int64_t> missing();
  std::string named(const std::vector<int64_t>& machines) const;
  void send_away(const Json& message);
};

/// What is no guest any more; the next pulse takes it away.
void dismiss(Guest& guest) { guest = Guest{.line = Line(-1), .came = 0}; }

void Server::serve() {
  double last_pulse = 0;
  while (!over) {
    std::vector<pollfd> places = {{listener, POLLIN, 0}};
    for (const Guest& guest : guests) places.push_back({guest.line.fd(), POLLIN, 0});
    constexpr int kMilliseconds = 100;
    ::poll(places.data(), places.size(), kMilliseconds);
    for (size_t i = guests.size(); i-- > 0;) {
      if (places[i + 1].revents != 0 && !hear(guests[i]))
        guests.erase(guests.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (places[0].revents != 0) welcome();
    if (steady_now_s() - last_pulse > kPulseSeconds) {
      last_pulse = steady_now_s();
      pulse();
    }
    decide();
  }
  send_away(refusal(ExitCode::kComm, tr("[launch] the job has ended on machine 0"),
                    tr("its own terminal says how")));
}

void Server::welcome() {
  const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) return;
  // A machine that lost its power does not close: what it does not acknowledge ends the connection.
  const unsigned int milliseconds = 5000;
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof(milliseconds));
  // A launcher that takes part says nothing and is told nothing, so only its connection shows that
  // it lives.
  const int yes = 1, seconds = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds));
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof(seconds));
  guests.push_back({.line = Line(fd)});
}

bool Server::hear(Guest& guest) {
  const bool open = guest.line.receive();
  const std::optional<std::string> line = guest.line.next();
  if (!line || guest.machine) return open;
  try {
    const Json said = parse_json(*line, "a launcher");
    if (said.contains("asks")) {
      guest.line.send(dump_text({{"job", job}, {"place", own_place()}}));
      return false;
    }
    return seat(guest, {said.at("machine"), said.at("processes"), said.at("world"), said.at("host"),
                        said.at("place"), said.at("id")}) &&
           open;
  } catch (const DataError&) {
    return false;
  } catch (const Json::exception&) {
    return false;
  }
}

bool Server::seat(Guest& guest, Machine machine) {
  if (machine.number < 0 || machine.number >= place.nodes || machine.processes < 1 ||
      machine.processes > place.world || machine.world != place.world) {
    guest.line.send(
        dump_text(refusal(ExitCode::kUsage,
                          tr("[launch] machine {} ({}) means {} processes in all, machine 0 "
                             "means {} on {} machines",
                             machine.number, machine.host, machine.world, place.world, place.nodes),
                          tr("give every machine the same line but for --node_rank"))));
    return false;
  }
  for (Guest& other : guests) {
    if (!other.machine || other.machine->id != machine.id) continue;
    guest.since = other.since;
    guest.took_part = other.took_part;
    dismiss(other);
  }
  if (machine.number == 0) first_came = steady_now_s();
  hosts[machine.number] = machine.host;
  guest.machine = std::move(machine);
  return true;
}

void Server::pulse() {
  const std::vector<int64_t> who = missing();
  const std::string text =
      dump_text({{"waits_for", named(who)}, {"count", who.size()}, {"job", job}});
  std::erase_if(guests, [&](const Guest& guest) {
    const bool is_mute = !guest.machine && steady_now_s() - guest.came > kMuteSeconds;
    return is_mute || (!guest.takes_part && !guest.line.send(text));
  });
  refuse_twice();
}

/// Who has lost its power is still there for a while: both are asked to go when both are alive for
/// certain. One that the job works with stays.
void Server::refuse_twice() {
  for (Guest& guest : guests) {
    if (!guest.machine || guest.takes_part || steady_now_s() - guest.came < kTwiceSeconds) continue;
    Guest& first = *first_of(guest.machine->number);
    if (&first == &guest) continue;
    const UsageError error =
        twice(guest.machine->number, first.machine->place, guest.machine->place);
    const std::string text = dump_text(refusal(error.code(), error.what(), error.hint()));
    guest.line.send(text);
    dismiss(guest);
    if (first.took_part) continue;
    first.line.send(text);
    dismiss(first);
  }
}

Guest* Server::first_of(int64_t machine) {
  Guest* first = nullptr;
  for (Guest& guest : guests) {
    if (!guest.machine || guest.machine->number != machine) continue;
    if (!first || guest.since < first->since) first = &guest;
  }
  return first;
}

Guest* Server::find(int64_t machine) {
  Guest* const first = first_of(machine);
  return first && !first->takes_part ? first : nullptr;
}

std::vector<int64_t> Server::missing() {
  std::vector<int64_t> list;
  for (int64_t machine = 0; machine < place.nodes; ++machine) {
    if (!find(machine)) list.push_back(machine);
  }
  return list;
}

std::string Server::named(const std::vector<int64_t>& machines) const {
  std::string list;
  for (const int64_t machine : machines) {
    const auto host = hosts.find(machine);
    list += fmt::format("{}{}{}", list.empty() ? "" : ", ", machine,
                        host == hosts.end() ? "" : fmt::format(" ({})", host->second));
  }
  return list;
}

void Server::decide() {
  if (!find(0)) return;
  const std::string who = named(missing());
  const double patience = life == 0 ? kFirstSeconds : place.rejoin_s;
  if (!who.empty() && steady_now_s() - first_came < patience) return;
  std::map<int64_t, int64_t> first_rank;
  int64_t world = 0;
  for (int64_t machine = 0; machine < place.nodes; ++machine) {
    first_rank[machine] = world;
    if (const Guest* guest = find(machine)) world += guest->machine->processes;
  }
  const std::string late =
      who.empty() ? "" : tr("machine {} did not come within {:g} s", who, patience);
  const int64_t needed = life == 0 ? place.world : place.min_ranks;
  if (world >= needed) return begin_life(first_rank, world, late);
  send_away(refusal(ExitCode::kComm,
                    tr("[launch] {}: of {} ranks {} are there, and {} are needed", late,
                       place.world, world, needed),
                    tr("--min_ranks N lets a job that lost a machine go on with N ranks; "
                       "--rdzv_timeout SECONDS waits longer")));
}

void Server::begin_life(const std::map<int64_t, int64_t>& first_rank, int64_t world,
                        const std::string& late) {
  std::erase_if(guests, [](const Guest& guest) { return guest.takes_part; });
  const std::optional<int64_t> port = free_port();
  if (!port) {
    return send_away(refusal(ExitCode::kComm,
                             tr("[launch] there is no free port: {}", std::strerror(errno)), ""));
  }
  for (const auto& [machine, rank] : first_rank) {
    Guest* const guest = find(machine);
    if (!guest) continue;
    guest->line.send(dump_text({{"life", life},
                                {"first_rank", rank},
                                {"world", world},
                                {"port", *port},
                                {"job", job},
                                {"missing", late}}));
    guest->takes_part = guest->took_part = true;
  }
  ++life;
}

void Server::send_away(const Json& message) {
  for (const Guest& guest : guests) {
    if (guest.machine && !guest.takes_part) guest.line.send(dump_text(message));
  }
  guests.clear();
}

}  // namespace rendezvous

struct Rendezvous::State : rendezvous::Server {};

Rendezvous::Rendezvous(const JobPlace& place) : state_(std::make_unique<State>()) {
  state_->place = place;
  state_->listener = rendezvous::listen_on(place.master_port);
  state_->thread = std::thread([state = state_.get()] { state->serve(); });
}

Rendezvous::~Rendezvous() {
  state_->over = true;
  state_->thread.join();
  ::close(state_->listener);
}

namespace rendezvous {

/// What a launcher knows while it waits, and says of it.
class Wait {
 public:
  Wait(const JobPlace& place, std::string address) : place_(place), address_(std::move(address)) {}

  double since_heard_s() const { return steady_now_s() - heard_; }
  void reached() { reached_ = true; }
  void hear(const Json& news) {
    heard_ = steady_now_s();
    news_ = news;
  }
  void lost() {
    reached_ = false;
    news_ = nullptr;
  }
  /// Errors: as throw_interrupted; UsageError if this is machine 0 and another one is too.
  void look() {
    if (const int signal = pending_interrupt())
      throw_interrupted(signal, tr("[launch] stopped by {}", interrupt_name(signal)));
    if (!wait_.is_due()) return;
    say();
    if (place_.node == 0 && news_.contains("job")) require_no_other_first();
  }

 private:
  void say() const {
    const double seconds = wait_.waited_s();
    if (news_.contains("waits_for")) {
      log::info("[launch] waiting for {} of {} machines: --node_rank {} ({:.0f} s)",
                news_["count"].get<int64_t>(), place_.nodes, news_["waits_for"].get<std::string>(),
                seconds);
    } else if (reached_) {
      log::info(
          "[launch] waiting for machine 0: what listens at {}:{} is no launcher ({:.0f} s); is it "
          "started with the same --max_restarts?",
          address_, place_.master_port, seconds);
    } else {
      log::info("[launch] waiting for machine 0 at {}:{} ({:.0f} s)", address_, place_.master_port,
                seconds);
    }
  }

  /// Where the others look for machine 0 it may be another that calls itself so.
  void require_no_other_first() const {
    Line line(connect_to(place_.master_address, place_.master_port));
    constexpr int kMilliseconds = 2000;
    if (line.fd() < 0 || !line.send(dump_text(Json{{"asks", true}})) ||
        !is_ready(line.fd(), POLLIN, kMilliseconds))
      return;
    line.receive();
    const std::optional<std::string> said = line.next();
    const std::optional<Json> answer = try_parse_json(said.value_or(""));
    if (!answer || !answer->is_object() || !answer->contains("place") ||
        (*answer)["job"] == news_["job"])
      return;
    throw twice(0, answer->at("place").get<std::string>(), own_place());
  }

  const JobPlace& place_;
  std::string address_;
  LongWait wait_;
  double heard_ = steady_now_s();
  bool reached_ = false;
  Json news_;
};

/// What machine 0 answers; nullopt: the connection broke, or nothing comes.
std::optional<Json> answer_on(Line& line, Wait& wait) {
  double since = steady_now_s();  // a connection alone says nothing: anybody may listen there
  while (steady_now_s() - since < kSilenceSeconds) {
    wait.look();
    constexpr int kMilliseconds = 200;
    if (!is_ready(line.fd(), POLLIN, kMilliseconds)) continue;
    const bool open = line.receive();
    while (const std::optional<std::string> said = line.next()) {
      since = steady_now_s();
      const std::optional<Json> news = try_parse_json(*said);
      if (!news || !news->is_object()) return std::nullopt;
      if (news->contains("refused") || news->contains("life")) return news;
      if (!news->contains("waits_for")) return std::nullopt;
      wait.hear(*news);
    }
    if (!open) return std::nullopt;
  }
  return std::nullopt;
}

Life life_from(const Json& answer) try {
  if (answer.contains("refused")) {
    const Json& refused = answer["refused"];
    if (refused.at(0) == static_cast<int>(ExitCode::kUsage))
      throw UsageError(refused.at(1), refused.at(2));
    throw CommError(refused.at(1), refused.at(2));
  }
  return {answer.at("life"), answer.at("first_rank"), answer.at("world"),
          answer.at("port"), answer.at("job"),        answer.at("missing")};
} catch (const Json::exception&) {
  throw CommError(tr("[launch] what listens at machine 0's port is no launcher of this version"),
                  tr("start the same danlu on every machine"));
}

}  // namespace rendezvous

Life meet_machines(const JobPlace& place, const Life& before) {
  using namespace rendezvous;
  static const std::string id = new_job_name();
  const std::string own = dump_text({{"machine", place.node},
                                     {"processes", place.nproc},
                                     {"world", place.world},
                                     {"host", host_name()},
                                     {"place", own_place()},
                                     {"id", id}});
  // By its own door machine 0 reaches itself whatever its name stands for.
  const std::string address = place.node == 0 ? "127.0.0.1" : place.master_address;
  const double patience = before.number > 0 ? place.rejoin_s : kFirstSeconds;
  Wait wait(place, address);
  while (wait.since_heard_s() < patience) {
    wait.look();
    const auto line = std::make_shared<Line>(connect_to(address, place.master_port));
    if (line->fd() >= 0 && line->send(own)) {
      wait.reached();
      if (const std::optional<Json> answer = answer_on(*line, wait)) {
        Life life = life_from(*answer);
        life.seat = line;
        return life;
      }
      wait.lost();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  throw CommError(
      tr("[launch] machine 0 is gone: its launcher at {}:{} does not answer for {:g} s", address,
         place.master_port, patience),
      tr("is it started with the same --max_restarts, and does the network reach it? Where a "
         "checkpoint or answers were saved the same command goes on from them"));
}

std::string new_job_name() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

}  // namespace danlu::cli
