// api/fields.h: the fields of a request, read one by one, so that what nobody read is known.
#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "api/refusal.h"
#include "base/json.h"

namespace danlu::api {

/// null is as if the field were not there. Every getter may throw Refusal, naming the field.
class Fields {
 public:
  /// path: what stands before the names of fields ("stream_options."). Errors: Refusal unless
  /// `object` is one. It outlives this.
  Fields(const Json& object, std::string path);
  explicit Fields(const Json& object) : Fields(object, "") {}

  const Json* find(std::string_view name);
  std::optional<std::string> text(std::string_view name);
  std::optional<bool> boolean(std::string_view name);
  bool boolean_or(std::string_view name, bool fallback);
  std::optional<int64_t> whole(std::string_view name,
                               int64_t least = std::numeric_limits<int64_t>::min(),
                               int64_t most = std::numeric_limits<int64_t>::max());
  std::optional<double> number(std::string_view name, double least, double most);
  std::optional<std::vector<std::string>> texts(std::string_view name);
  std::optional<std::vector<int64_t>> wholes(std::string_view name);
  /// Taken, whatever it is, and without effect.
  void pass(std::initializer_list<std::string_view> names);
  /// Errors: Refusal if it is given, and neither false, 0 nor empty.
  void refuse(std::string_view name, std::string_view why);

  /// Errors: Refusal if it is given and not the number `neutral`.
  void refuse_unless(std::string_view name, double neutral, std::string_view why);
  /// Errors: Refusal if it is given as false.
  void require_on(std::string_view name, std::string_view why);

  std::string path_of(std::string_view name) const { return path_ + std::string(name); }
  /// Fields that none of the calls above named, and to each the one that may be meant; "": none.
  /// Those of take_unread are among them.
  std::map<std::string, std::string> unread() const;
  /// Counts what nobody read of an object within this one as unread here, too. path: what stands
  /// before its names; "": its own path.
  void take_unread(const Fields& within, const std::string& path = "");

 private:
  const Json& object_;
  std::string path_;
  std::set<std::string, std::less<>> read_;
  std::map<std::string, std::string> unread_within_ = {};
};

/// "a string", "a list", …
std::string kind_of(const Json& value);

/// Members of one object in a request: far more than clients send, few enough to be read at once.
inline constexpr size_t kMostMembers = 10'000;

/// The body of a request. Errors: Refusal if it is no JSON object, or one in it has more members.
Json parse_body(const std::string& body);

}  // namespace danlu::api
