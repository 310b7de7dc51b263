#include "support/fake_hub.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "support/temporary_directory.h"

namespace danlu::test {
namespace fake_hub_detail {

using Json = nlohmann::ordered_json;

std::string hash_by(const char* program, const std::string& content) {
  const TemporaryDirectory folder;
  std::ofstream(folder / "content", std::ios::binary) << content;
  const std::string command = std::string(program) + " '" + (folder / "content").string() + "'";
  FILE* pipe = ::popen(command.c_str(), "r");
  char words[200] = "";
  if (!pipe || !std::fgets(words, sizeof words, pipe)) throw std::runtime_error(program);
  ::pclose(pipe);
  return std::string(words).substr(0, std::string(words).find(' '));
}

void send_all(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t sent = ::send(fd, data, size, MSG_NOSIGNAL);
    if (sent <= 0) return;
    data += sent;
    size -= static_cast<size_t>(sent);
  }
}

/// False at the end of the connection.
bool read_request(int fd, std::string& buffer, HubRequest& request) {
  size_t end = 0;
  while ((end = buffer.find("\r\n\r\n")) == std::string::npos) {
    char bytes[4096];
    const ssize_t count = ::recv(fd, bytes, sizeof bytes, 0);
    if (count <= 0) return false;
    buffer.append(bytes, static_cast<size_t>(count));
  }
  std::istringstream lines(buffer.substr(0, end));
  std::string line;
  std::getline(lines, line);
  std::istringstream(line) >> request.method >> request.target;
  while (std::getline(lines, line)) {
    if (line.ends_with('\r')) line.pop_back();
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    std::string name = line.substr(0, colon);
    std::transform(name.begin(), name.end(), name.begin(), ::tolower);
    request.headers[name] = line.substr(colon + 2);
  }
  buffer.erase(0, end + 4);
  const std::string length = request.header("content-length");
  const size_t body_size = length.empty() ? 0 : std::stoul(length);
  while (buffer.size() < body_size) {
    char bytes[4096];
    const ssize_t count = ::recv(fd, bytes, sizeof bytes, 0);
    if (count <= 0) return false;
    buffer.append(bytes, static_cast<size_t>(count));
  }
  request.body = buffer.substr(0, body_size);
  buffer.erase(0, body_size);
  // To a proxy the whole URL is said.
  if (request.target.starts_with("http://"))
    request.target = request.target.substr(request.target.find('/', 7));
  request.path = request.target.substr(0, request.target.find('?'));
  return true;
}

std::string unescaped(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '%') {
      out += text[at];
      continue;
    }
    out += static_cast<char>(std::stoi(text.substr(at + 1, 2), nullptr, 16));
    at += 2;
  }
  return out;
}

std::string query_value(const HubRequest& request, const std::string& key) {
  const size_t at = request.target.find(key + "=");
  if (at == std::string::npos) return {};
  const size_t begin = at + key.size() + 1;
  return unescaped(request.target.substr(begin, request.target.find('&', begin) - begin));
}

HubAnswer json_answer(const Json& value) {
  return {.status = 200, .headers = {{"Content-Type", "application/json"}}, .body = value.dump()};
}

HubAnswer not_found(const char* code) {
  return {.status = 404, .headers = {{"X-Error-Code", code}}, .body = "{}"};
}

}  // namespace fake_hub_detail

std::string sha256_by_coreutils(const std::string& content) {
  return fake_hub_detail::hash_by("sha256sum", content);
}

std::string git_sha1_by_coreutils(const std::string& content) {
  const std::string blob =
      "blob " + std::to_string(content.size()) + std::string(1, '\0') + content;
  return fake_hub_detail::hash_by("sha1sum", blob);
}

FakeHub::FakeHub() {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(listener_, 64) != 0)
    throw std::runtime_error("no port for the fake hub");
  ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { serve(); });
}

FakeHub::~FakeHub() {
  stop_ = true;
  ::shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  {
    const std::lock_guard lock(mutex_);
    for (const int fd : connections_) ::shutdown(fd, SHUT_RDWR);
  }
  for (std::thread& talker : talkers_) talker.join();
  for (const int fd : connections_) ::close(fd);
  ::close(listener_);
}

std::string FakeHub::url(const std::string& host) const {
  return fmt::format("http://{}:{}", host, port_);
}

std::vector<HubRequest> FakeHub::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

std::vector<HubRequest> FakeHub::requests_for(const std::string& part) const {
  std::vector<HubRequest> out;
  for (const HubRequest& request : requests()) {
    if (request.target.find(part) != std::string::npos) out.push_back(request);
  }
  return out;
}

void FakeHub::forget_requests() {
  const std::lock_guard lock(mutex_);
  requests_.clear();
}

void FakeHub::serve() {
  while (!stop_) {
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    const std::lock_guard lock(mutex_);
    connections_.push_back(fd);
    talkers_.emplace_back([this, fd] { talk(fd); });
  }
}

void FakeHub::pause(int ms) const {
  constexpr int kStep_ms = 20;
  for (; ms > 0 && !stop_; ms -= kStep_ms)
    std::this_thread::sleep_for(std::chrono::milliseconds(std::min(ms, kStep_ms)));
}

void FakeHub::talk(int fd) {
  using namespace fake_hub_detail;
  std::string buffer;
  for (HubRequest request; read_request(fd, buffer, request); request = {}) {
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
    }
    HubAnswer answer = rule ? rule(request) : HubAnswer{.status = 0};
    if (answer.status == 0) answer = honest(request);
    const bool has_body = request.method != "HEAD";
    const long long length = answer.content_length >= 0
                                 ? answer.content_length
                                 : static_cast<long long>(answer.body.size());
    std::string head =
        fmt::format("HTTP/1.1 {} -\r\nContent-Length: {}\r\n", answer.status, length);
    for (const auto& [name, value] : answer.headers) head += name + ": " + value + "\r\n";
    head += "\r\n";
    send_all(fd, head.data(), head.size());
    if (!has_body) continue;
    pause(answer.stall_ms);
    std::string body = answer.body;
    if (answer.cut_after >= 0) body.resize(std::min<size_t>(body.size(), answer.cut_after));
    constexpr size_t kPiece = 4096;
    for (size_t at = 0; at < body.size() && !stop_; at += kPiece) {
      send_all(fd, body.data() + at, std::min(kPiece, body.size() - at));
      pause(answer.pause_ms);
    }
    if (answer.cut_after >= 0 || static_cast<long long>(body.size()) != length) break;
  }
  ::shutdown(fd, SHUT_RDWR);
}

HubAnswer FakeHub::honest(const HubRequest& request) const {
  return request.path.starts_with("/api/v1/") ? modelscope(request) : huggingface(request);
}

HubAnswer FakeHub::content(const HubRequest& request, const File& file) const {
  HubAnswer answer{.status = 200,
                   .headers = {{"Content-Type", "application/octet-stream"}},
                   .body = file.content};
  unsigned long long begin = 0, end = 0;
  const int read = std::sscanf(request.header("range").c_str(), "bytes=%llu-%llu", &begin, &end);
  if (read < 1) return answer;
  if (begin >= file.content.size()) return {.status = 416, .headers = {}, .body = ""};
  if (read == 1) end = file.content.size() - 1;
  end = std::min<unsigned long long>(end, file.content.size() - 1);
  answer.status = 206;
  answer.body = file.content.substr(begin, end - begin + 1);
  answer.headers.emplace_back("Content-Range",
                              fmt::format("bytes {}-{}/{}", begin, end, file.content.size()));
  return answer;
}

HubAnswer FakeHub::huggingface(const HubRequest& request) const {
  using namespace fake_hub_detail;
  const std::string& path = request.path;
  const auto describe = [&](const std::string& name, const File& file, bool is_tree) {
    Json entry;
    if (is_tree) entry["type"] = "file";
    entry[is_tree ? "path" : "rfilename"] = name;
    if (!is_tree && !lists_hashes) return entry;
    entry["size"] = file.content.size();
    entry[is_tree ? "oid" : "blobId"] = git_sha1_by_coreutils(file.content);
    if (file.is_lfs)
      entry["lfs"] = {{is_tree ? "oid" : "sha256", sha256_by_coreutils(file.content)},
                      {"size", file.content.size()},
                      {"pointerSize", 134}};
    return entry;
  };
  for (const std::string kind : {"models", "datasets"}) {
    const std::string api = "/api/" + kind + "/" + id;
    if (path == api + "/revision/main" || path == api + "/revision/" + commit) {
      Json siblings = Json::array();
      for (const auto& [name, file] : files) siblings.push_back(describe(name, file, false));
      return json_answer({{"id", id}, {"_id", "1"}, {"sha", commit}, {"siblings", siblings}});
    }
    if (path.starts_with(api + "/tree/")) {
      Json entries = Json::array();
      for (const auto& [name, file] : files) entries.push_back(describe(name, file, true));
      return json_answer(entries);
    }
    if (path.starts_with(api + "/paths-info/")) {
      Json entries = Json::array();
      const Json asked = Json::parse(request.body);
      for (const Json& name : asked.at("paths")) {
        const auto at = files.find(name.get<std::string>());
        if (at == files.end()) continue;
        entries.push_back(describe(at->first, at->second, true));
        entries.back()["lastCommit"] = {
            {"id", commit}, {"title", "-"}, {"date", "2024-01-01T00:00:00Z"}};
      }
      return json_answer(entries);
    }
    if (path.starts_with(api + "/revision/")) return not_found("RevisionNotFound");
    const std::string resolve =
        (kind == "models" ? "/" : "/datasets/") + id + "/resolve/" + commit + "/";
    if (path.starts_with(resolve)) {
      const auto at = files.find(unescaped(path.substr(resolve.size())));
      if (at == files.end()) return not_found("EntryNotFound");
      HubAnswer answer = content(request, at->second);
      answer.headers.emplace_back("X-Repo-Commit", commit);
      const std::string& body = at->second.content;
      answer.headers.emplace_back(
          "ETag",
          '"' + (at->second.is_lfs ? sha256_by_coreutils(body) : git_sha1_by_coreutils(body)) +
              '"');
      return answer;
    }
  }
  return not_found("RepoNotFound");
}

HubAnswer FakeHub::modelscope(const HubRequest& request) const {
  using namespace fake_hub_detail;
  for (const std::string kind : {"models", "datasets"}) {
    const std::string api = "/api/v1/" + kind + "/" + id + "/repo";
    if (!request.path.starts_with(api)) continue;
    if (query_value(request, "Revision") != "master")
      return {.status = 404, .headers = {}, .body = R"({"Code":10,"Message":"no such revision"})"};
    if (request.path == api) {
      const auto at = files.find(query_value(request, "FilePath"));
      return at == files.end() ? HubAnswer{.status = 404, .headers = {}, .body = "{}"}
                               : content(request, at->second);
    }
    Json list = Json::array({{{"Path", "sub"}, {"Type", "tree"}, {"Size", 0}, {"Sha256", ""}}});
    for (const auto& [name, file] : files)
      list.push_back({{"Path", name},
                      {"Type", "blob"},
                      {"Size", file.content.size()},
                      {"Sha256", sha256_by_coreutils(file.content)}});
    if (request.path == api + "/files" || query_value(request, "PageNumber") == "1")
      return json_answer({{"Code", 200}, {"Data", {{"Files", list}}}, {"Success", true}});
    return json_answer({{"Code", 200}, {"Data", {{"Files", Json::array()}}}, {"Success", true}});
  }
  return {.status = 404, .headers = {}, .body = R"({"Code":10,"Message":"no such repo"})"};
}

}  // namespace danlu::test
