// tests/support/fake_hub.h: a hub on the loopback, in this process, that misbehaves as it is told.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace danlu::test {

/// SHA-256 and git's SHA-1 of a blob, by coreutils: another implementation than the program's.
std::string sha256_by_coreutils(const std::string& content);
std::string git_sha1_by_coreutils(const std::string& content);

struct HubRequest {
  std::string method, target, body;
  std::string path;                            ///< path: the target without its query
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string header(const std::string& name) const {
    const auto at = headers.find(name);
    return at == headers.end() ? std::string() : at->second;
  }
};

struct HubAnswer {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};
  /// Sent instead of the body's own length, if not negative.
  long long content_length = -1;
  /// The connection is cut after so many bytes of the body, if not negative.
  long long cut_after = -1;
  int pause_ms = 0;  ///< between pieces of 4 kB
  int stall_ms = 0;  ///< before the body
};

/// Serves one repository by both hubs' rules. A rule of the test is asked first.
class FakeHub {
 public:
  struct File {
    std::string content;
    bool is_lfs = false;
  };
  /// Nullopt-like: an answer of status 0 lets the hub answer as it is.
  using Rule = std::function<HubAnswer(const HubRequest&)>;

  FakeHub();
  ~FakeHub();
  FakeHub(const FakeHub&) = delete;
  FakeHub& operator=(const FakeHub&) = delete;

  /// "http://127.0.0.1:PORT"; `host` may be localhost, which to a client is another host.
  std::string url(const std::string& host = "127.0.0.1") const;

  std::string id = "org/tiny";
  std::string commit = "0123456789abcdef0123456789abcdef01234567";
  std::map<std::string, File> files;
  Rule rule;
  bool lists_hashes = true;  ///< false: siblings without blobs; the tree has them

  /// All requests so far, in order.
  std::vector<HubRequest> requests() const;
  /// The requests whose target contains `part`.
  std::vector<HubRequest> requests_for(const std::string& part) const;
  void forget_requests();
  /// The answer without misbehaviour.
  HubAnswer honest(const HubRequest& request) const;

 private:
  void serve();
  void talk(int fd);
  void pause(int ms) const;
  HubAnswer huggingface(const HubRequest& request) const;
  HubAnswer modelscope(const HubRequest& request) const;
  HubAnswer content(const HubRequest& request, const File& file) const;

  int listener_ = -1, port_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread acceptor_;
  std::vector<std::thread> talkers_;
  std::vector<int> connections_;
  mutable std::mutex mutex_;
  std::vector<HubRequest> requests_;
};

}  // namespace danlu::test
