// eval/benchmarks/checked_object.h: a map of a task file, read key by key: what nobody asked for is
// an error.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace danlu::eval {

class CheckedObject {
 public:
  /// `where`: "my.yaml: fewshot_config". Errors: UsageError if it is no map.
  CheckedObject(const Json& object, std::string where);

  bool has(std::string_view key) const;
  /// Null where it is absent. The key counts as known.
  const Json& at(std::string_view key);
  // Absent and null are none. Errors: UsageError naming key, what it must be and what it is.
  std::optional<std::string> text(std::string_view key);
  std::optional<int64_t> integer(std::string_view key);
  std::optional<double> number(std::string_view key);
  std::optional<bool> boolean(std::string_view key);
  /// A text, or a list of texts.
  std::optional<std::vector<std::string>> texts(std::string_view key);
  /// Errors: UsageError if it is absent or empty.
  std::string required_text(std::string_view key);
  /// Keys that are allowed and mean nothing here.
  void ignore(std::initializer_list<std::string_view> keys);
  /// Errors: UsageError of the first key that none of the above named, with the nearest that one
  /// did.
  void refuse_others() const;
  /// What is left; it counts as known.
  Json take_others();

  [[noreturn]] void fail(std::string_view key, const std::string& wanted) const;
  const std::string& where() const { return where_; }

 private:
  const Json& object_;
  std::string where_;
  std::vector<std::string> known_;
};

}  // namespace danlu::eval
