// arch/config_reader.h: typed access to config.json with errors that name the key, the rule and the
// value.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace danlu::arch {

/// A JSON object seen as a table of settings; a key that is null counts as missing.
/// Every getter throws ModelError "[config.json] <key> …" for a value of the wrong kind or range.
class ConfigReader {
 public:
  /// `object` must outlive the reader. `where` prefixes the key in messages ("rope_scaling.").
  /// Errors: ModelError if `object` is not a JSON object.
  explicit ConfigReader(const Json& object, std::string where = {});

  bool has(std::string_view key) const { return value(key) != nullptr; }
  /// The key is there, though perhaps null.
  bool mentions(std::string_view key) const;
  /// nullptr when missing or null.
  const Json* value(std::string_view key) const;

  /// A count in [1, limit]. Errors: also when the key is missing.
  int64_t required_size(std::string_view key, int64_t limit) const;
  int64_t size_or(std::string_view key, int64_t fallback, int64_t limit) const;
  std::optional<int64_t> integer(std::string_view key) const;
  double number_or(std::string_view key, double fallback) const;
  std::optional<double> number(std::string_view key) const;
  bool boolean_or(std::string_view key, bool fallback) const;
  std::optional<std::string> text(std::string_view key) const;
  /// One integer or a list of them (eos_token_id); empty when missing.
  std::vector<int64_t> integers(std::string_view key) const;
  std::optional<std::vector<std::string>> texts(std::string_view key) const;

 private:
  [[noreturn]] void wrong(std::string_view key, std::string_view rule, const Json& got) const;
  int64_t checked_size(std::string_view key, const Json& got, int64_t limit) const;
  std::optional<int64_t> as_integer(const Json& got) const;

  const Json& object_;
  std::string where_;
};

/// Upper bounds of the sizes in a config: far above any real model, low enough that no product of
/// them overflows.
inline constexpr int64_t kMaxVocab = int64_t{1} << 28;
inline constexpr int64_t kMaxWidth = int64_t{1} << 20;
inline constexpr int64_t kMaxFfn = int64_t{1} << 22;
inline constexpr int64_t kMaxHeads = int64_t{1} << 16;
inline constexpr int64_t kMaxLayers = 4096;
inline constexpr int64_t kMaxExperts = 4096;
inline constexpr int64_t kMaxPositions = int64_t{1} << 40;

}  // namespace danlu::arch
