#include "eval/run/journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/file_lock.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/new_output.h"
#include "eval/run/answer_json.h"

namespace danlu::eval {
namespace {
namespace {

constexpr const char* kFormat = "danlu-answers";
constexpr int kVersion = 1;

/// Fields with their lengths before them: no two calls have the same bytes.
class KeyBytes {
 public:
  void add(std::string_view text) {
    add(static_cast<int64_t>(text.size()));
    bytes_ += text;
  }
  void add(int64_t number) {
    for (int shift = 0; shift < 64; shift += 8)
      bytes_ += static_cast<char>(static_cast<uint64_t>(number) >> shift);
  }
  void add(double number) { add(std::bit_cast<int64_t>(number)); }
  std::string hash() const {
    const XXH128_hash_t hash = XXH3_128bits(bytes_.data(), bytes_.size());
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }

 private:
  std::string bytes_;
};

std::string journal_line(const std::string& key, const Answer& answer) {
  Json line = {{"key", key}};
  line.update(answer_json(answer));
  return line.dump() + "\n";
}

bool read_line(std::string_view text, std::string* key, Answer* answer) {
  const std::optional<Json> line = try_parse_json(text);
  if (!line || !line->is_object()) return false;
  const auto name = line->find("key");
  if (name == line->end() || !name->is_string()) return false;
  *key = name->get<std::string>();
  const std::optional<Answer> read = read_answer(*line);
  if (read) *answer = *read;
  return read.has_value();
}

/// "answers.3.jsonl" for answers.jsonl.
fs::path file_of_rank(const fs::path& path, int rank) {
  return path.parent_path() /
         fmt::format("{}.{}{}", path.stem().string(), rank, path.extension().string());
}

/// The rank whose file of `path` this is; -1: none's.
int rank_of_file(const fs::path& path, const fs::path& file) {
  const std::string name = file.filename().string();
  const std::string begin = path.stem().string() + ".", end = path.extension().string();
  if (!name.starts_with(begin) || !name.ends_with(end)) return -1;
  if (name.size() <= begin.size() + end.size()) return -1;
  const char* last = name.data() + name.size() - end.size();
  int rank = -1;
  const auto [read, error] = std::from_chars(name.data() + begin.size(), last, rank);
  return error == std::errc{} && read == last && file_of_rank(path, rank) == file ? rank : -1;
}

std::vector<std::pair<int, fs::path>> files_of_ranks(const fs::path& path) {
  std::vector<std::pair<int, fs::path>> files;
  std::error_code error;
  for (fs::directory_iterator at(path.parent_path(), error), end; !error && at != end;
       at.increment(error)) {
    const fs::path file = path.parent_path() / at->path().filename();
    if (const int rank = rank_of_file(path, file); rank >= 0) files.emplace_back(rank, file);
  }
  if (error)
    throw IoError(tr("{}: cannot be listed: {}", path.parent_path().string(), error.message()));
  return files;
}

void set_aside(const fs::path& file) {
  fs::path aside;
  for (int i = 1; aside.empty() || fs::exists(fs::symlink_status(aside)); ++i)
    aside = fmt::format("{}.other-{}", file.string(), i);
  if (::rename(file.c_str(), aside.c_str()) != 0)
    throw IoError(tr("{}: cannot rename: {}", file.string(), std::strerror(errno)));
  log::notice(
      "{} holds answers of another model or with other settings; it is {} now and is not read",
      file.string(), aside.filename().string());
}

enum class Owner { kNobody, kUs, kAnother };

/// Whether the only line of a file, without its end, may be the beginning of what we write first.
bool may_be_header(std::string_view text) {
  const std::string begin = fmt::format("{{\"format\":\"{}\",", kFormat);
  const size_t common = std::min(text.size(), begin.size());
  return text.substr(0, common) == begin.substr(0, common);
}

/// What one file holds.
struct Contents {
  Owner owner = Owner::kNobody;  ///< kNobody: not even its first line is whole
  size_t good_bytes = 0;         ///< before a line that was cut off
  size_t num_bad_lines = 0;
};

Contents read_file_of_answers(const fs::path& file, const std::string& header,
                              std::unordered_map<std::string, Answer>* answers) {
  const std::string text = read_file(file);
  Contents contents;
  const bool is_foreign = text.find('\n') == text.npos && !may_be_header(text);
  if (is_foreign) contents.owner = Owner::kAnother;
  for (size_t begin = 0, end = 0; (end = text.find('\n', begin)) != text.npos; begin = end + 1) {
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    contents.good_bytes = end + 1;
    if (begin == 0) {
      contents.owner = line == header ? Owner::kUs : Owner::kAnother;
      if (contents.owner == Owner::kAnother) return contents;
      continue;
    }
    std::string key;
    Answer answer;
    if (read_line(line, &key, &answer)) {
      (*answers)[key] = std::move(answer);
    } else {
      ++contents.num_bad_lines;
    }
  }
  return contents;
}

}  // namespace
}  // namespace

std::string call_key(const Call& call, const PictureContent& content_of) {
  KeyBytes bytes;
  bytes.add(static_cast<int64_t>(call.kind));
  // Answers from when BOS was predicted too are others.
  if (call.kind == CallKind::kRolling) bytes.add(int64_t{2});
  bytes.add(call.context);
  bytes.add(call.continuation);
  bytes.add(static_cast<int64_t>(call.has_own_bos));
  bytes.add(call.repeat);
  bytes.add(static_cast<int64_t>(call.rules.until.size()));
  for (const std::string& stop : call.rules.until) bytes.add(stop);
  bytes.add(call.rules.max_tokens);
  bytes.add(static_cast<int64_t>(call.rules.do_sample));
  bytes.add(static_cast<int64_t>(call.wants_whole));
  bytes.add(call.rules.temperature);
  bytes.add(call.rules.top_p);
  bytes.add(call.rules.top_k);
  bytes.add(call.rules.num_beams);
  for (const std::string& image : call.images) {
    bytes.add(image);
    if (content_of) bytes.add(static_cast<int64_t>(content_of(image)));
  }
  return bytes.hash();
}

struct Journal::State {
  State(const fs::path& path, JournalRank rank, fs::path file, FileLock lock)
      : path(path), rank(rank), file(std::move(file)), lock(std::move(lock)) {}
  ~State() {
    if (fd >= 0) ::close(fd);
  }
  bool is_ours_to_tidy(int of) const { return of % rank.num_ranks == rank.rank; }

  void read_all();
  void open_own(size_t good_bytes);
  void append(const std::string& line);
  std::string key_of(const Call& call);

  fs::path path;
  JournalRank rank;
  fs::path file;  ///< this rank's
  std::optional<FileLock> lock;
  std::string header;
  int fd = -1;
  off_t size = 0;  ///< of what is whole in `file`
  std::unordered_map<std::string, Answer> answers;
  PictureContent content_of;
  std::unordered_map<std::string, uint64_t> contents;  ///< of pictures by name
};

/// A picture stands in a call for each choice, and each call is asked for twice.
std::string Journal::State::key_of(const Call& call) {
  if (!content_of) return call_key(call);
  return call_key(call, [&](const std::string& image) {
    const auto [at, is_new] = contents.try_emplace(image);
    if (is_new) at->second = content_of(image);
    return at->second;
  });
}

void Journal::State::read_all() {
  size_t good_bytes = 0, num_bad = 0;
  for (const auto& [of, name] : files_of_ranks(path)) {
    if (!rank.goes_on) {
      if (is_ours_to_tidy(of)) fs::remove(name);
      continue;
    }
    Contents contents;
    try {
      contents = read_file_of_answers(name, header, &answers);
    } catch (const IoError&) {
      if (fs::exists(name)) throw;
      continue;  // the rank that tidies it has set it aside
    }
    num_bad += contents.num_bad_lines;
    if (contents.owner == Owner::kAnother && is_ours_to_tidy(of)) set_aside(name);
    if (of == rank.rank && contents.owner == Owner::kUs) good_bytes = contents.good_bytes;
  }
  if (num_bad > 0)
    log::warning("{}: {} damaged lines are passed by; their calls are asked again", path.string(),
                 num_bad);
  open_own(good_bytes);
}

void Journal::State::open_own(size_t good_bytes) {
  fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (fd < 0) throw IoError(tr("{}: cannot open: {}", file.string(), std::strerror(errno)));
  size = static_cast<off_t>(good_bytes);
  if (::ftruncate(fd, size) != 0)
    throw IoError(tr("{}: cannot write: {}", file.string(), std::strerror(errno)));
  if (size == 0) append(header + "\n");
}

/// Written at once: the system keeps it when the process dies. It is not synced, which would cost
/// more than asking again what a failure of power takes.
void Journal::State::append(const std::string& line) {
  if (fd < 0) throw InternalError("an answer for a journal that was removed");
  if (::lseek(fd, size, SEEK_SET) >= 0 && write_all(fd, line.data(), line.size())) {
    size += static_cast<off_t>(line.size());
    return;
  }
  const int code = errno;
  // Half a line would be taken for the beginning of the next one.
  [[maybe_unused]] const int ignored = ::ftruncate(fd, size);
  throw IoError(tr("{}: cannot keep the answer: {}", file.string(), std::strerror(code)),
                tr("the {} answers so far are kept: make room and give the same command again",
                   answers.size()));
}

Journal::Journal(const fs::path& path, const Json& identity, JournalRank rank,
                 PictureContent content_of) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  std::error_code error;
  fs::create_directories(whole.parent_path(), error);
  if (error)
    throw IoError(tr("{}: cannot create: {}", whole.parent_path().string(), error.message()));
  const fs::path file = file_of_rank(whole, rank.rank);
  const fs::path lock_file = lock_file_of(file);
  std::optional<FileLock> lock = FileLock::try_take(lock_file);
  if (!lock) {
    throw IoError(tr("{}: {} works on it", file.string(), FileLock::holder(lock_file)),
                  tr("wait until it has ended, or name another --output_path"));
  }
  state_ = std::make_unique<State>(whole, rank, file, std::move(*lock));
  state_->content_of = std::move(content_of);
  state_->header = dump_text({{"format", kFormat}, {"version", kVersion}, {"identity", identity}});
  state_->read_all();
}

Journal::~Journal() = default;

std::optional<Answer> Journal::find(const Call& call) const {
  const auto found = state_->answers.find(state_->key_of(call));
  if (found == state_->answers.end()) return std::nullopt;
  return found->second;
}

void Journal::add(const Call& call, const Answer& answer) {
  const std::string key = state_->key_of(call);
  state_->append(journal_line(key, answer));
  state_->answers[key] = answer;
}

size_t Journal::size() const { return state_->answers.size(); }

void Journal::remove() {
  State& state = *state_;
  if (state.fd >= 0) ::close(std::exchange(state.fd, -1));
  for (const auto& [of, name] : files_of_ranks(state.path)) {
    if (!state.is_ours_to_tidy(of)) continue;
    std::error_code error;
    fs::remove(name, error);
    if (error) throw IoError(tr("{}: cannot remove: {}", name.string(), error.message()));
  }
  state.lock.reset();
}

}  // namespace danlu::eval
