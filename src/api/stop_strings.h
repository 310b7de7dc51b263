// api/stop_strings.h: ends an answer where one of its stop strings appears, however its text is
// cut.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace danlu::api {

/// The stop string that ends first counts; the longest, where several end at the same byte. So the
/// result does not depend on how the text was cut. Text that could begin a stop string is held
/// back. Not thread-safe.
class StopStrings {
 public:
  /// include: the stop string itself is part of the text. Errors: UsageError for an empty string.
  explicit StopStrings(std::vector<std::string> stops, bool include = false);

  /// Text that may be sent now. After a stop string was found: "" for ever.
  std::string push(std::string_view piece);
  /// What is still held back, once nothing follows.
  std::string finish();

  /// The stop string that ended the text.
  const std::optional<std::string>& found() const { return found_; }
  /// Bytes of the whole text before the stop string. REQUIRES: found().
  size_t found_at() const { return found_at_; }

 private:
  struct Stop {
    std::string text;
    std::vector<size_t> borders;  ///< of each prefix: its longest proper prefix that is its suffix
    size_t matched = 0;           ///< bytes of `text` that the text so far ends with
  };
  std::vector<Stop> stops_;
  bool include_;
  std::string held_;
  size_t sent_ = 0;  ///< bytes before held_
  std::optional<std::string> found_;
  size_t found_at_ = 0;
};

}  // namespace danlu::api
