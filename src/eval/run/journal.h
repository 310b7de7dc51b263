// eval/run/journal.h: answers kept while a run goes on, so that one that was killed goes on where
// it was.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/json.h"
#include "eval/item.h"

namespace danlu::eval {

/// A hash of what the file of a picture holds, as Call::images names it.
using PictureContent = std::function<uint64_t(const std::string& image)>;

/// What identifies a call: a hash of 128 bits, in hexadecimal, of all its fields, and with
/// `content_of` of what its pictures hold.
std::string call_key(const Call& call, const PictureContent& content_of = {});

/// A rank of a run. Each has a file of its own.
struct JournalRank {
  int rank = 0, num_ranks = 1;
  bool goes_on = true;  ///< false: what is there is taken away unread
};

/// Answers by call, each a line of a file as soon as it is there: what was told to the system
/// survives the process. Files of ranks lie beside each other ("answers.0.jsonl", "answers.1.jsonl"
/// for answers.jsonl), and all are read, whatever number of ranks wrote them. Their first line says
/// whose answers they are. Not thread-safe.
class Journal {
 public:
  /// Opens or makes it, with its directory. `identity`: what answers depend on beside the call. A
  /// file of another identity is renamed, with a notice, and never read; a line that a kill or a
  /// full disk cut off is dropped. Made by all ranks of a run before any of them adds, each reads
  /// the same. `content_of`: an answer is that of the picture which was there; each file is asked
  /// for once. Errors: IoError (another process works on it, naming it; not readable or writable).
  Journal(const std::filesystem::path& path, const Json& identity, JournalRank rank = {},
          PictureContent content_of = {});
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  /// The answer that add was given for an equal call, bit by bit.
  std::optional<Answer> find(const Call& call) const;
  /// Errors: IoError naming the file (disk full); what was added before stays readable.
  void add(const Call& call, const Answer& answer);
  /// The number of calls that have an answer.
  size_t size() const;
  /// The run is whole: takes away the files that this rank answers for (of ranks that are no more,
  /// some). find goes on to work, add does not. Errors: IoError.
  void remove();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace danlu::eval
