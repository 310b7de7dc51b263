#include "http/request_reader.h"

#include <algorithm>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>
#include <string_view>
#include <utility>

namespace danlu::http {
namespace {

namespace beast = boost::beast;
using Parser = beast::http::request_parser<beast::http::string_body>;

constexpr size_t kMaxHeaders = 256;

struct Refusal {
  int status;
  const char* problem;
};

Refusal refusal_of(const beast::error_code& code) {
  using Problem = beast::http::error;
  if (code == Problem::header_limit) return {431, "the request's headers are too long"};
  if (code == Problem::body_limit) return {413, "the request's body is too long"};
  if (code == Problem::bad_version) return {400, "the request is not of HTTP/1.1"};
  if (code == Problem::bad_chunk || code == Problem::bad_chunk_extension)
    return {400, "a chunk of the request's body is malformed"};
  if (code == Problem::bad_content_length || code == Problem::bad_transfer_encoding ||
      code == Problem::multiple_content_length)
    return {400, "the length of the request's body is not clear"};
  return {400, "the request is malformed"};
}

/// A header's value that goes on in the next line, which no client writes any more and programs
/// between read in different ways (RFC 9112, 5.2).
bool has_folded_line(std::string_view bytes) {
  const std::string_view head = bytes.substr(0, bytes.find("\r\n\r\n"));
  if (head.size() == bytes.size()) return false;  // its end has not come
  return head.find("\n ") != head.npos || head.find("\n\t") != head.npos;
}

/// What a target of the absolute form, which proxies send, names at `host`; others as they are.
std::string without_authority(std::string_view target, const std::string* host) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!target.starts_with(scheme) || !host) continue;
    const std::string_view rest = target.substr(scheme.size());
    const size_t end = std::min(rest.find_first_of("/?#"), rest.size());
    if (!beast::iequals(std::string(rest.substr(0, end)), *host)) continue;
    return (rest.substr(end).starts_with('/') ? "" : "/") + std::string(rest.substr(end));
  }
  return std::string(target);
}

}  // namespace

class RequestReader::Impl {
 public:
  Impl(size_t max_header_bytes, size_t max_body_bytes)
      : max_header_bytes_(max_header_bytes), max_body_bytes_(max_body_bytes) {
    begin();
  }

  void begin() {
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(max_header_bytes_));
    parser_->body_limit(max_body_bytes_);
    request_ = {};
    expects_continue_ = false;
    has_begun_ = !buffer_.empty();
    state_ = State::kHead;
  }

  void read() {
    while (state_ == State::kHead || state_ == State::kBody) {
      if (parser_->is_done()) return finish();
      if (buffer_.empty()) return;
      if (state_ == State::kHead && has_folded_line(buffer_))
        return fail({400, "a header of the request goes on in the next line"});
      beast::error_code code;
      const size_t taken = parser_->put(boost::asio::buffer(buffer_), code);
      buffer_.erase(0, taken);
      if (code == beast::http::error::need_more) {
        // A head that is longer than the limit is found as soon as it is, not at its end.
        if (state_ == State::kHead && buffer_.size() > max_header_bytes_)
          return fail({431, "the request's headers are too long"});
        if (state_ == State::kBody && buffer_.size() > max_header_bytes_)
          return fail({400, "a chunk of the request's body is malformed"});
        return;
      }
      if (code) return fail(refusal_of(code));
      if (state_ == State::kHead && parser_->is_header_done()) return read_head();
      if (taken == 0 && !parser_->is_done()) return;
    }
  }

  void go_on() {
    if (state_ != State::kHeadRead) return;
    state_ = State::kBody;
    read();
  }

  std::string buffer_;
  std::optional<Parser> parser_;
  Request request_;
  bool expects_continue_ = false;
  bool has_begun_ = false;  ///< the parser may have taken the first line already
  State state_ = State::kHead;
  Refusal refusal_ = {0, ""};
  std::string problem_;

 private:
  void fail(const Refusal& refusal) {
    state_ = State::kFailed;
    refusal_ = refusal;
    problem_ = refusal.problem;
  }

  void read_head() {
    const auto& head = parser_->get();
    size_t num_hosts = 0;
    for (const auto& field : head) {
      if (request_.headers.size() == kMaxHeaders)
        return fail({431, "the request has more than 256 headers"});
      num_hosts += field.name() == beast::http::field::host;
      request_.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
    }
    if (head.version() < 10 || head.version() > 11)
      return fail({400, "the request is not of HTTP/1.1"});
    if (head.version() == 11 && num_hosts != 1)
      return fail({400, "the request must have one Host header"});
    const std::string* coding = find_header(request_.headers, "Transfer-Encoding");
    if (coding && head.version() == 11 && !beast::iequals(*coding, "chunked") && parser_->chunked())
      return fail({501, "bodies are read plain or chunked, and in no other coding"});
    if (coding && (!parser_->chunked() || head.version() < 11 ||
                   find_header(request_.headers, "Content-Length")))
      return fail({400, "the length of the request's body is not clear"});
    request_.method = std::string(head.method_string());
    const std::string target = without_authority({head.target().data(), head.target().size()},
                                                 find_header(request_.headers, "Host"));
    if (!read_target(target, &request_.path, &request_.query))
      return fail({400, "the request's path is not one of this server"});
    const std::string* expected = find_header(request_.headers, "Expect");
    expects_continue_ =
        expected && head.version() == 11 && beast::iequals(*expected, "100-continue");
    state_ = State::kHeadRead;
  }

  void finish() {
    if (state_ == State::kHead) return read_head();
    state_ = State::kRead;
  }

  size_t max_header_bytes_, max_body_bytes_;
};

RequestReader::RequestReader(size_t max_header_bytes, size_t max_body_bytes)
    : impl_(std::make_unique<Impl>(max_header_bytes, max_body_bytes)) {}
RequestReader::~RequestReader() = default;

void RequestReader::append(std::string_view bytes) {
  impl_->buffer_ += bytes;
  impl_->has_begun_ = true;
  impl_->read();
}

void RequestReader::go_on() { impl_->go_on(); }

void RequestReader::next() {
  if (impl_->state_ == State::kFailed) return;
  impl_->begin();
  impl_->read();
}

RequestReader::State RequestReader::state() const { return impl_->state_; }
Request RequestReader::take_head() { return std::move(impl_->request_); }
std::string RequestReader::take_body() { return std::move(impl_->parser_->get().body()); }
bool RequestReader::keeps_alive() const { return impl_->parser_->keep_alive() && !is_old(); }
bool RequestReader::is_old() const { return impl_->parser_->get().version() < 11; }

bool RequestReader::expects_continue() const { return impl_->expects_continue_; }

bool RequestReader::has_body() const { return impl_->parser_->chunked() || body_length() > 0; }

uint64_t RequestReader::body_length() const {
  const auto length = impl_->parser_->content_length();
  return length ? *length : 0;
}

bool RequestReader::has_begun() const { return impl_->has_begun_; }
size_t RequestReader::buffered_bytes() const { return impl_->buffer_.size(); }
int RequestReader::status() const { return impl_->refusal_.status; }
const std::string& RequestReader::problem() const { return impl_->problem_; }

}  // namespace danlu::http
