#include "hub/fetch_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "hub/listing.h"

namespace danlu::hub {
namespace {

void feed(Digest& digest, const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw IoError(tr("{}: cannot be read: {}", file.string(), std::strerror(errno)));
  std::vector<char> buffer(1 << 20);
  while (in.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || in.gcount() > 0)
    digest.update({buffer.data(), static_cast<size_t>(in.gcount())});
}

std::string start_of(const fs::path& file) {
  std::string start(256, '\0');
  std::ifstream in(file, std::ios::binary);
  in.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<size_t>(in.gcount()));
  return start;
}

bool is_page(const std::string& start) {
  const size_t at = start.find_first_not_of(" \t\r\n");
  if (at == std::string::npos) return false;
  std::string word = start.substr(at, 14);
  std::transform(word.begin(), word.end(), word.begin(), ::tolower);
  return word.starts_with("<!doctype html") || word.starts_with("<html");
}

bool may_be_page(const std::string& path) {
  for (const char* ending : {".html", ".htm", ".xml", ".svg", ".txt", ".md"}) {
    if (path.ends_with(ending)) return true;
  }
  return false;
}

bool is_hash(const std::string& text) {
  return (text.size() == 40 || text.size() == 64) &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

/// The hash that an answer's ETag is, without its quotes; else empty.
std::string hash_in(const std::string& etag) {
  std::string text = etag.starts_with("W/") ? etag.substr(2) : etag;
  text.erase(std::remove(text.begin(), text.end(), '"'), text.end());
  return is_hash(text) ? text : std::string();
}

struct ByteRange {
  uint64_t begin = 0;
  std::optional<uint64_t> total;
};

/// "bytes 5-9/10"
std::optional<ByteRange> range_in(const std::string& header) {
  unsigned long long begin = 0, end = 0, total = 0;
  const int read = std::sscanf(header.c_str(), "bytes %llu-%llu/%llu", &begin, &end, &total);
  if (read < 2) return std::nullopt;
  return ByteRange{begin, read == 3 ? std::optional<uint64_t>(total) : std::nullopt};
}

/// The file that grows. Errors: IoError.
class Part {
 public:
  explicit Part(fs::path path) : path_(std::move(path)) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd_ < 0) fail();
    size_ = static_cast<uint64_t>(::lseek(fd_, 0, SEEK_END));
  }
  ~Part() { ::close(fd_); }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  uint64_t size() const { return size_; }
  void append(std::string_view bytes) {
    if (!write_all(fd_, bytes.data(), bytes.size())) fail();
    size_ += bytes.size();
  }
  void clear() {
    if (::ftruncate(fd_, 0) != 0) fail();
    ::lseek(fd_, 0, SEEK_SET);
    size_ = 0;
  }
  void sync() const {
    if (::fsync(fd_) != 0) fail();
  }
  const fs::path& path() const { return path_; }

 private:
  [[noreturn]] void fail() const {
    const int code = errno;
    std::string hint =
        hint_of_full(code, tr("free some space, or choose another place (--local_dir, "
                              "--cache_dir)"));
    if (!hint.empty()) hint += tr("; the same line then goes on where this one stopped");
    throw IoError(tr("{}: cannot be written: {}", path_.string(), std::strerror(code)), hint);
  }
  fs::path path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

class Fetch {
 public:
  Fetch(Client& client, const FileToFetch& what, const CountBytes& count)
      : client_(client), what_(what), file_(what.file), count_(count), part_(what.part) {
    // Without a hash nothing would show that the begun file is of another revision.
    if (file_.etag().empty()) part_.clear();
  }

  bool run() {
    for (bool is_second = false;; is_second = true) {
      digest_ = file_.sha256.empty() ? nullptr : make_digest("sha256");
      if (file_.size && part_.size() > *file_.size) clear();
      if (digest_ && part_.size() > 0) feed(*digest_, part_.path());
      const bool was_begun = part_.size() > 0;
      if (!file_.size || part_.size() < *file_.size) transfer();
      part_.sync();
      const std::string fault = fault_of_content();
      if (fault.empty()) return !file_.etag().empty();
      // What an earlier process left may have been bad; a server's slip does not come twice.
      clear();
      if (is_second) {
        fs::remove(part_.path());
        refuse(fault);
      }
      log::warning("{}: {}{}; it is fetched anew", file_.path, fault,
                   was_begun ? tr(" (part of it was there before)") : std::string());
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& fault) const {
    throw CommError(
        tr("[download] {}: {}: {}; it was not kept", what_.repository.id, file_.path, fault),
        tr("the same line goes on with the other files kept; another source: HF_ENDPOINT, or "
           "--hub"));
  }

  void clear() {
    count_(-static_cast<int64_t>(came_));
    came_ = 0;
    part_.clear();
  }

  /// Until the server has sent all it has.
  void transfer() {
    for (int tries = 0;;) {
      const uint64_t before = part_.size();
      try {
        if (attempt()) return;
        continue;  // begin anew, without the range
      } catch (const Failure& failure) {
        if (part_.size() > before) tries = 0;
        if (!failure.is_passing || tries >= client_.settings().max_retries)
          throw_of_hub(client_.settings(), what_.repository, file_.path, failure);
        try {
          client_.wait_before_retry(failure, ++tries);
        } catch (const Failure& impatient) {
          throw_of_hub(client_.settings(), what_.repository, file_.path, impatient);
        }
      }
    }
  }

  /// False: the server does not take the range; the part was emptied.
  bool attempt() {
    std::map<std::string, std::string> headers;
    if (part_.size() > 0) headers["Range"] = fmt::format("bytes={}-", part_.size());
    bool has_no_range = false;
    std::string fault;
    const bool whole = client_.get_once(
        file_url(client_.settings().endpoint, what_.repository, what_.listing.commit, file_.path),
        headers,
        {.on_head =
             [&](const std::vector<Head>& heads) {
               has_no_range = heads.back().status == 416;
               fault = fault_of(heads);
               return fault.empty() && !has_no_range;
             },
         .on_data =
             [&](std::string_view data) {
               if (file_.size && part_.size() + data.size() > *file_.size) {
                 fault = tr("more bytes came than the {} that the hub lists", *file_.size);
                 return false;
               }
               part_.append(data);
               if (digest_) digest_->update(data);
               came_ += data.size();
               count_(static_cast<int64_t>(data.size()));
               return true;
             }});
    client_.require_not_interrupted();
    if (has_no_range) {
      if (headers.empty())
        refuse(tr("the server refuses a range that was not asked for (HTTP 416)"));
      start_anew();
      return false;
    }
    if (!fault.empty()) {
      clear();
      fs::remove(part_.path());
      refuse(fault);
    }
    // Another file's error ends this one too: who asked for it knows why.
    if (!whole) throw Failure{.words = "stopped"};
    if (file_.size && part_.size() < *file_.size && part_.size() > 0)
      throw Failure{.is_passing = true,
                    .words = fmt::format("{} of {} bytes came", part_.size(), *file_.size)};
    return true;
  }

  void start_anew() {
    clear();
    if (digest_) digest_ = make_digest("sha256");
  }

  /// Looks at what the server says before it sends; empties the part where all of it comes anew.
  std::string fault_of(const std::vector<Head>& heads) {
    const Head& answer = heads.back();
    std::string linked;
    for (const Head& head : heads) {
      const std::string commit = head.header("x-repo-commit");
      if (!commit.empty() && commit != what_.listing.commit)
        return tr("it changed while it was fetched: the hub sends commit {}, and listed {}", commit,
                  what_.listing.commit);
      if (linked.empty()) linked = hash_in(head.header("x-linked-etag"));
    }
    if (linked.empty()) linked = hash_in(heads.front().header("etag"));
    if (answer.status == 416) return {};
    if (file_.etag().empty()) adopt(linked);
    if (!linked.empty() && linked != file_.etag() && linked.size() == file_.etag().size())
      return tr("it changed while it was fetched: the hub sends {}, and listed {}", linked,
                file_.etag());
    if (answer.header("content-type").starts_with("text/html") && !may_be_page(file_.path))
      return tr("a web page came in its place");
    if (answer.status == 206) return fault_of_range(answer);
    if (part_.size() > 0) start_anew();
    const std::string length = answer.header("content-length");
    const bool says_length = !length.empty() && answer.header("content-encoding").empty();
    if (says_length && file_.size && length != std::to_string(*file_.size))
      return length == "0" ? tr("it came empty, and the hub lists {} bytes", *file_.size)
                           : tr("{} bytes are sent, and the hub lists {}", length, *file_.size);
    return {};
  }

  std::string fault_of_range(const Head& answer) {
    const auto range = range_in(answer.header("content-range"));
    if (!range || range->begin != part_.size())
      return tr("another part of it came than was asked for");
    if (range->total && file_.size && *range->total != *file_.size)
      return tr("{} bytes are sent, and the hub lists {}", *range->total, *file_.size);
    return {};
  }

  /// A mirror may list no hash, and still say it here.
  void adopt(const std::string& hash) {
    if (hash.size() == 40) file_.git_sha1 = hash;
    if (hash.size() != 64) return;
    file_.sha256 = hash;
    digest_ = make_digest("sha256");
    if (part_.size() > 0) feed(*digest_, part_.path());
  }

  /// Empty, or what is wrong with the whole of it.
  std::string fault_of_content() const {
    if (file_.size && part_.size() != *file_.size)
      return part_.size() == 0 ? tr("it came empty, and the hub lists {} bytes", *file_.size)
                               : tr("{} of {} bytes came", part_.size(), *file_.size);
    if (!file_.size && part_.size() == 0 && !is_of_nothing(file_.etag()))
      return tr("it came empty");
    const std::string found = !file_.sha256.empty()     ? digest_->hex()
                              : !file_.git_sha1.empty() ? git_sha1_of(part_.path())
                                                        : std::string();
    if (found == file_.etag()) return {};
    const std::string start = start_of(part_.path());
    if (is_page(start) && !may_be_page(file_.path)) return tr("a web page came in its place");
    if (start.starts_with("version https://git-lfs.github.com/spec/"))
      return tr("a Git LFS pointer came in its place");
    return tr("its hash is {}, and the hub lists {}", found, file_.etag());
  }

  Client& client_;
  const FileToFetch& what_;
  RemoteFile file_;
  const CountBytes& count_;
  Part part_;
  std::unique_ptr<Digest> digest_;
  uint64_t came_ = 0;
};

}  // namespace

bool fetch_file(Client& client, const FileToFetch& what, const CountBytes& count) {
  return Fetch(client, what, count).run();
}

std::string sha256_of(const fs::path& file) {
  const auto digest = make_digest("sha256");
  feed(*digest, file);
  return digest->hex();
}

std::string git_sha1_of(const fs::path& file) {
  const auto digest = make_digest("sha1");
  digest->update("blob " + std::to_string(fs::file_size(file)) + std::string(1, '\0'));
  feed(*digest, file);
  return digest->hex();
}

bool has_content(const fs::path& file, const RemoteFile& listed) {
  std::error_code error;
  const uint64_t size = fs::file_size(file, error);
  if (error || (listed.size && size != *listed.size)) return false;
  if (!listed.sha256.empty()) return sha256_of(file) == listed.sha256;
  if (!listed.git_sha1.empty()) return git_sha1_of(file) == listed.git_sha1;
  return listed.size.has_value();
}

}  // namespace danlu::hub
