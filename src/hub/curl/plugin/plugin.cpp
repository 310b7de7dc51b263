// libdanlu_curl.so: HTTP and TLS by libcurl, digests by libcrypto.
#include <curl/curl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <memory>
#include <string>

#include "hub/transport.h"

namespace danlu::hub {
namespace {

/// Where systems keep their certificates: curl's own place is that of the system it was built on.
const char* certificates() {
  for (const char* name : {"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"}) {
    const char* file = std::getenv(name);
    if (file && *file) return file;
  }
  for (const char* file : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                           "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}) {
    if (::access(file, R_OK) == 0) return file;
  }
  return nullptr;
}

struct FreeUrl {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using Url = std::unique_ptr<CURLU, FreeUrl>;

Url parsed(const std::string& text) {
  Url url(curl_url());
  if (!url || curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) return {};
  return url;
}

std::string part_of(const Url& url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url.get(), part, &text, flags) != CURLUE_OK) return {};
  std::string copy = text;
  curl_free(text);
  return copy;
}

bool is_web(const Url& url) {
  const std::string scheme = part_of(url, CURLUPART_SCHEME);
  return scheme == "http" || scheme == "https";
}

struct Running {
  const Sinks& sinks;
  CURL* handle;
  Head head;
  bool head_given = false;
  bool stopped = false;

  bool give_head() {
    if (head_given) return !stopped;
    head_given = true;
    long status = 0;
    curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
    head.status = static_cast<int>(status);
    stopped = !sinks.on_head(head);
    return !stopped;
  }
};

size_t on_header(char* data, size_t size, size_t count, void* user) {
  auto& running = *static_cast<Running*>(user);
  std::string line(data, size * count);
  // Another head follows an interim one and a proxy's.
  if (line.starts_with("HTTP/")) running.head.headers.clear();
  const size_t colon = line.find(':');
  if (colon != std::string::npos) {
    std::string name = line.substr(0, colon);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char byte) { return static_cast<char>(std::tolower(byte)); });
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    const size_t end = line.find_last_not_of(" \t\r\n");
    running.head.headers.emplace_back(
        name, begin == std::string::npos || begin > end ? "" : line.substr(begin, end - begin + 1));
  }
  return size * count;
}

size_t on_body(char* data, size_t size, size_t count, void* user) {
  auto& running = *static_cast<Running*>(user);
  if (!running.give_head()) return 0;
  running.stopped = !running.sinks.on_data({data, size * count});
  return running.stopped ? 0 : size * count;
}

int on_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  auto& running = *static_cast<Running*>(user);
  if (running.sinks.should_stop && running.sinks.should_stop()) running.stopped = true;
  return running.stopped ? 1 : 0;
}

Outcome outcome_of(CURLcode code) {
  switch (code) {
    case CURLE_OK:
      return Outcome::kDone;
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
      return Outcome::kBroken;
    default:
      return Outcome::kRefused;
  }
}

class CurlTransport final : public Transport {
 public:
  ~CurlTransport() override { curl_easy_cleanup(handle_); }

  Exchange send(const Request& request, const Sinks& sinks) override {
    if (!handle_) return {Outcome::kRefused, "libcurl cannot be set up"};
    curl_easy_reset(handle_);  // connections stay open
    Running running{.sinks = sinks, .handle = handle_, .head = {}};
    char words[CURL_ERROR_SIZE] = "";
    curl_slist* headers = nullptr;
    for (const auto& [name, value] : request.headers)
      headers = curl_slist_append(headers, (name + ": " + value).c_str());
    set_up(request, running, headers, words);
    const CURLcode code = curl_easy_perform(handle_);
    curl_slist_free_all(headers);
    if (running.stopped) return {Outcome::kStopped, {}};
    if (code != CURLE_OK) return {outcome_of(code), *words ? words : curl_easy_strerror(code)};
    return {running.give_head() ? Outcome::kDone : Outcome::kStopped, {}};
  }

  std::string resolve(const std::string& base, const std::string& location) const override {
    const Url url = parsed(base);
    if (!url || curl_url_set(url.get(), CURLUPART_URL, location.c_str(), 0) != CURLUE_OK) return {};
    return is_web(url) ? part_of(url, CURLUPART_URL) : std::string();
  }

  std::string origin(const std::string& text) const override {
    const Url url = parsed(text);
    if (!url || !is_web(url)) return {};
    return part_of(url, CURLUPART_SCHEME) + "://" + part_of(url, CURLUPART_HOST) + ":" +
           part_of(url, CURLUPART_PORT, CURLU_DEFAULT_PORT);
  }

 private:
  void set_up(const Request& request, Running& running, curl_slist* headers, char* words) {
    const auto set = [&](CURLoption option, auto value) {
      curl_easy_setopt(handle_, option, value);
    };
    set(CURLOPT_URL, request.url.c_str());
    if (request.method == "HEAD") set(CURLOPT_NOBODY, 1L);
    set(CURLOPT_HTTPHEADER, headers);
    set(CURLOPT_ERRORBUFFER, words);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_FOLLOWLOCATION, 0L);
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(request.connect_timeout_s * 1000));
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, std::max(1L, static_cast<long>(request.stall_timeout_s)));
    set(CURLOPT_BUFFERSIZE, 512L * 1024);
    if (const char* file = certificates()) set(CURLOPT_CAINFO, file);
    set(CURLOPT_HEADERFUNCTION, on_header);
    set(CURLOPT_HEADERDATA, &running);
    set(CURLOPT_WRITEFUNCTION, on_body);
    set(CURLOPT_WRITEDATA, &running);
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, on_progress);
    set(CURLOPT_XFERINFODATA, &running);
  }

  CURL* handle_ = curl_easy_init();
};

class EvpDigest final : public Digest {
 public:
  explicit EvpDigest(const char* name) : context_(EVP_MD_CTX_new()) {
    EVP_DigestInit_ex(context_, EVP_get_digestbyname(name), nullptr);
  }
  ~EvpDigest() override { EVP_MD_CTX_free(context_); }
  void update(std::string_view bytes) override {
    EVP_DigestUpdate(context_, bytes.data(), bytes.size());
  }
  std::string hex() override {
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    EVP_DigestFinal_ex(context_, bytes, &size);
    std::string out;
    for (unsigned i = 0; i < size; ++i) {
      out += "0123456789abcdef"[bytes[i] >> 4];
      out += "0123456789abcdef"[bytes[i] & 15];
    }
    return out;
  }

 private:
  EVP_MD_CTX* context_;
};

}  // namespace
}  // namespace danlu::hub

extern "C" danlu::hub::Transport* danlu_curl_transport() {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  static_cast<void>(ready);
  return new danlu::hub::CurlTransport;
}

extern "C" danlu::hub::Digest* danlu_curl_digest(const char* name) {
  return new danlu::hub::EvpDigest(name);
}
