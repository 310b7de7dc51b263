#include "cli/hostfile.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/error.h"

namespace danlu::cli {
namespace {

/// nullopt: no such line.
std::optional<Host> host_of(const std::string& line) {
  std::istringstream words(line);
  Host host;
  std::string slots, more;
  words >> host.name;
  if (!(words >> slots)) return host;
  constexpr std::string_view kSlots = "slots=";
  if (!slots.starts_with(kSlots) || words >> more) return std::nullopt;
  const char* end = slots.data() + slots.size();
  const auto [at, error] = std::from_chars(slots.data() + kSlots.size(), end, host.slots);
  if (error != std::errc() || at != end || host.slots < 1 || host.slots > 1024) return std::nullopt;
  return host;
}

/// A name that stands for an address of this machine.
bool resolves_to(const std::string& name, const std::set<std::string>& addresses) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) return false;
  bool own = false;
  for (const addrinfo* one = found; one; one = one->ai_next) {
    char text[NI_MAXHOST] = "";
    ::getnameinfo(one->ai_addr, one->ai_addrlen, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
    own = own || addresses.count(text) > 0;
  }
  ::freeaddrinfo(found);
  return own;
}

}  // namespace

std::vector<Host> read_hostfile(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in) throw IoError(tr("[launch] --hostfile {}: cannot be read", file.string()));
  std::vector<Host> hosts;
  std::set<std::string> names;
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    const auto host = host_of(line);
    if (!host) {
      throw UsageError(
          tr("[launch] {}:{}: '{}' is no line of a host file", file.string(), number, line),
          tr("each is NAME slots=N, with N processes from 1 to 1024"));
    }
    if (!names.insert(host->name).second)
      throw UsageError(
          tr("[launch] {}:{}: {} stands there twice", file.string(), number, host->name));
    hosts.push_back(*host);
  }
  if (hosts.empty()) throw UsageError(tr("[launch] --hostfile {}: no machine", file.string()));
  return hosts;
}

size_t find_own_host(const std::filesystem::path& file, const std::vector<Host>& hosts,
                     const std::set<std::string>& own_names) {
  const auto is_everybodys = [](const Host& host) {
    return host.name == "localhost" || host.name == "127.0.0.1" || host.name == "::1";
  };
  if (hosts.size() == 1 && is_everybodys(hosts[0])) return 0;
  const auto here = std::find_if(hosts.begin(), hosts.end(), is_everybodys);
  if (here != hosts.end()) {
    throw UsageError(tr("[launch] --hostfile {}: {} is another machine on each of several",
                        file.string(), here->name),
                     tr("name the machines as the others reach them"));
  }
  std::vector<size_t> found;
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (own_names.count(hosts[i].name) > 0 || resolves_to(hosts[i].name, own_names))
      found.push_back(i);
  }
  if (found.empty()) {
    throw UsageError(tr("[launch] --hostfile {}: this machine ({}) is not in it", file.string(),
                        fmt::join(own_names, ", ")),
                     tr("name it there as it is called here, or say --node_rank, --nnodes and "
                        "--master_addr instead"));
  }
  if (found.size() > 1) {
    throw UsageError(tr("[launch] --hostfile {}: {} and {} are both this machine", file.string(),
                        hosts[found[0]].name, hosts[found[1]].name),
                     tr("leave one of them out"));
  }
  return found[0];
}

std::set<std::string> own_names() {
  std::set<std::string> names;
  char host[256] = "";
  if (::gethostname(host, sizeof(host) - 1) == 0) {
    const std::string name = host;
    names.insert({name, name.substr(0, name.find('.'))});
  }
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return names;
  for (const ifaddrs* one = all; one; one = one->ifa_next) {
    if (!one->ifa_addr || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    char text[NI_MAXHOST] = "";
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (::getnameinfo(one->ifa_addr, size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0)
      names.insert(text);
  }
  ::freeifaddrs(all);
  return names;
}

}  // namespace danlu::cli
