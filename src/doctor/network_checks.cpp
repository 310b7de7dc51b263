// What leads out of this machine, and its clock.
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <stdexcept>

#include "base/lower_case.h"
#include "base/message.h"
#include "doctor/check.h"
#include "doctor/child.h"

namespace danlu::doctor {
namespace {

struct Address {
  std::string host, port;
};

/// "https://host:8443/path", "user:word@host:3128" -> host and port; nothing without a host.
std::optional<Address> address_of(std::string url) {
  std::string port = "80";
  if (const size_t scheme = url.find("://"); scheme != url.npos) {
    if (url.starts_with("https")) port = "443";
    if (url.starts_with("socks")) port = "1080";
    url = url.substr(scheme + 3);
  }
  url = url.substr(0, url.find_first_of("/?#"));
  if (const size_t at = url.rfind('@'); at != url.npos) url = url.substr(at + 1);
  std::string host = url;
  if (url.starts_with('[')) {
    const size_t close = std::min(url.find(']'), url.size());
    host = url.substr(1, close - 1);
    url = url.substr(close);
  }
  if (const size_t colon = url.rfind(':'); colon != url.npos) {
    port = url.substr(colon + 1);
    if (!url.starts_with(']')) host = url.substr(0, colon);
  }
  const auto number = number_of(port);
  if (host.empty() || !number || *number < 1 || *number > 65535) return std::nullopt;
  return Address{host, port};
}

/// Errors: std::runtime_error saying why nobody is reached there.
void connect_to(const Address& address, double timeout_s) {
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  const int unknown = ::getaddrinfo(address.host.c_str(), address.port.c_str(), &wanted, &found);
  if (unknown != 0) throw std::runtime_error(::gai_strerror(unknown));
  int error = 0;
  for (const addrinfo* at = found; at; at = at->ai_next) {
    const int fd = ::socket(at->ai_family, at->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    error = fd < 0 ? errno : 0;
    if (fd >= 0 && ::connect(fd, at->ai_addr, at->ai_addrlen) != 0) error = errno;
    if (error == EINPROGRESS) {
      pollfd ready{fd, POLLOUT, 0};
      socklen_t size = sizeof error;
      if (::poll(&ready, 1, static_cast<int>(timeout_s * 1000)) <= 0) {
        error = ETIMEDOUT;
      } else {
        ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
      }
    }
    if (fd >= 0) ::close(fd);
    if (error == 0) break;
  }
  ::freeaddrinfo(found);
  if (error != 0) throw std::runtime_error(std::strerror(error));
}

/// "" if somebody is reached, else why not. In a child: a name server may not answer for minutes.
std::string why_unreachable(const SystemRoots& roots, const Address& address) {
  const double limit_s = roots.network_timeout_s;
  const ChildResult result = ask_child(
      [&] {
        connect_to(address, limit_s);
        return std::string();
      },
      limit_s);
  if (result.succeeded()) return "";
  return result.exit_code == 1 ? result.out : describe_failure(result, limit_s);
}

/// Upper and lower case are both in use.
std::string proxy_variable(const SystemRoots& roots, const std::string& name) {
  const std::string lower = roots.variable(name);
  if (!lower.empty()) return lower;
  std::string upper = name;
  for (char& c : upper) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return roots.variable(upper);
}

bool is_exempt(const SystemRoots& roots, const std::string& host) {
  std::string list = proxy_variable(roots, "no_proxy");
  std::replace(list.begin(), list.end(), ',', ' ');
  for (std::string suffix : words_of(list)) {
    if (suffix == "*") return true;
    while (suffix.starts_with('.') || suffix.starts_with('*')) suffix.erase(0, 1);
    if (host == suffix || (!suffix.empty() && host.ends_with("." + suffix))) return true;
  }
  return false;
}

std::vector<std::string> interfaces(const SystemRoots& roots) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(roots.sys / "class/net", none))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

/// Reads /proc/net/route (destination 00000000) and ipv6_route (thirty-two zeros, of length 00).
bool has_default_route(const SystemRoots& roots) {
  for (const std::string& line : lines_of(text_in(roots.proc / "net/route").value_or(""))) {
    const auto words = words_of(line);
    if (words.size() > 7 && words[1] == "00000000" && words[7] == "00000000") return true;
  }
  for (const std::string& line : lines_of(text_in(roots.proc / "net/ipv6_route").value_or(""))) {
    const auto words = words_of(line);
    if (words.size() > 9 && words[0] == std::string(32, '0') && words[1] == "00" &&
        words[9] != "lo")
      return true;
  }
  return false;
}

/// "eth0,eth1", "^lo,docker", "=eth0": those that are named to be used and are not there.
std::vector<std::string> missing_interfaces(std::string list,
                                            const std::vector<std::string>& present) {
  if (list.starts_with('^')) return {};
  if (list.starts_with('=')) list.erase(0, 1);
  std::replace(list.begin(), list.end(), ',', ' ');
  std::vector<std::string> missing;
  for (const std::string& word : words_of(list)) {
    const std::string name = word.substr(0, word.find(':'));
    const bool there = std::any_of(present.begin(), present.end(), [&](const std::string& one) {
      return one.starts_with(name);  // a beginning names all that have it
    });
    if (!there) missing.push_back(name);
  }
  return missing;
}

}  // namespace

Finding check_network(const SystemRoots& roots) {
  const auto names = interfaces(roots);
  std::string up;
  for (const std::string& name : names) {
    const std::string state = line_in(roots.sys / "class/net" / name / "operstate").value_or("");
    if (name != "lo" && state != "down") up += (up.empty() ? "" : ", ") + name;
  }
  Finding finding;
  if (up.empty()) {
    finding.add(Verdict::kWarning, tr("no network interface is up"),
                tr("one machine needs none; several need --network=host or a network of their "
                   "own"));
  } else {
    finding.add(Verdict::kOk, tr("interfaces {}", up));
  }
  if (!has_default_route(roots)) {
    finding.add(Verdict::kWarning, tr("no default route"),
                tr("fine where models and data lie on this machine already"));
  }
  for (const char* name : {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME"}) {
    for (const std::string& missing : missing_interfaces(roots.variable(name), names)) {
      finding.add(Verdict::kFailed, tr("{} names {}, which is not there", name, missing),
                  tr("name one of: {}", up.empty() ? std::string("lo") : up));
    }
  }
  for (const char* name : {"http_proxy", "https_proxy", "all_proxy"}) {
    const std::string value = proxy_variable(roots, name);
    if (value.empty()) continue;
    const auto address = address_of(value);
    finding.add(address ? Verdict::kOk : Verdict::kWarning,
                address ? fmt::format("{} {}:{}", name, address->host, address->port)
                        : tr("{} is no address", name),
                address ? std::string() : tr("such as http://host:3128"));
  }
  return finding;
}

Finding check_hub(const SystemRoots& roots) {
  if (!roots.variable("HF_HUB_OFFLINE").empty() && roots.variable("HF_HUB_OFFLINE") != "0")
    return Finding::not_here(tr("HF_HUB_OFFLINE is set: nothing is asked of the network"));
  const std::string endpoint = roots.variable("HF_ENDPOINT");
  std::vector<std::string> urls = {endpoint.empty() ? "https://huggingface.co" : endpoint,
                                   "https://modelscope.cn"};
  if (!roots.asks_network) return Finding::not_here(tr("the network is not asked"));
  Finding finding;
  for (const std::string& url : urls) {
    const auto hub = address_of(url);
    if (!hub) {
      finding.add(Verdict::kWarning, tr("{} is no address", url), tr("it begins with https://"));
      continue;
    }
    const std::string proxy =
        is_exempt(roots, hub->host)
            ? ""
            : proxy_variable(roots, url.starts_with("https") ? "https_proxy" : "http_proxy");
    const auto asked = proxy.empty() ? hub : address_of(proxy);
    const std::string why = asked ? why_unreachable(roots, *asked) : tr("the proxy is no address");
    const std::string through =
        proxy.empty() || !asked ? hub->host : tr("{} through the proxy {}", hub->host, asked->host);
    if (why.empty()) {
      finding.add(Verdict::kOk, tr("{} takes connections", through));
    } else {
      finding.add(Verdict::kWarning, tr("{} is not reached: {}", through, why));
    }
  }
  if (finding.verdict == Verdict::kWarning) {
    finding.remedy =
        tr("a mirror by HF_ENDPOINT, a proxy by https_proxy; models and data that lie "
           "here already need no network");
  }
  return finding;
}

Finding check_clock(const SystemRoots& roots) {
  // When this was written; a clock before that stands still or begins at 1970.
  constexpr int64_t kWritten = 1764000000;
  if (roots.now_s < kWritten) {
    return {Verdict::kFailed, tr("this machine's clock is in the past"),
            tr("set it (date -s, or a time service): certificates and times of files go wrong")};
  }
  const bool service = fs::exists(roots.run / "systemd/timesync/synchronized");
  Finding finding{Verdict::kOk, tr("the time is plausible"), ""};
  if (service || roots.clock_is_synchronised.value_or(false)) {
    finding.add(Verdict::kOk, tr("a time service keeps it"));
  } else if (roots.clock_is_synchronised) {
    finding.add(Verdict::kWarning, tr("no time service keeps it"),
                tr("for jobs of several machines run chrony or systemd-timesyncd; compare with "
                   "`date +%s` on each"));
  }
  return finding;
}

}  // namespace danlu::doctor
