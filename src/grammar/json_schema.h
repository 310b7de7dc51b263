// grammar/json_schema.h: the JSON texts that satisfy a schema as ways through an automaton.
#pragma once
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "grammar/automaton.h"
#include "grammar/json_parts.h"

namespace danlu::grammar {

/// Adds a tag of GLM-4.5's form, such as <arg_key>.
using TagMark = std::function<void(State from, State to, const std::string& tag)>;

/// Draft 2020-12 and what older ones call otherwise. Known: true and false; type, enum, const;
/// properties, required, additionalProperties; items, prefixItems (or a list in items and
/// additionalItems), minItems, maxItems; minLength, maxLength, pattern, format (one of them at a
/// time); minimum, maximum and their exclusive forms (whole numbers where the type is number);
/// multipleOf (whole, up to kMaxFactor or where few are in bounds; of numbers 0.1, 0.01, … too);
/// uniqueItems where items are an enumeration of kMaxDistinct values at most; patternProperties
/// without further members, of patterns that have no name in common;
/// anyOf, oneOf (as anyOf), allOf (merged), $ref inside the document, recursion included;
/// nullable. Other keywords are errors.
///
/// Members come in the order of `properties`; further ones after them, where
/// additionalProperties allows it or nothing is said of members. Keywords of one type say that
/// values are of it where there is no "type".
class SchemaWriter {
 public:
  /// root: what $ref points into; to outlive this. where: begins places in errors.
  SchemaWriter(AutomatonBuilder& builder, JsonParts& parts, const Json& root, std::string where);

  /// Adds the texts from `from` to `to`. Errors: GrammarError naming the place.
  void add(State from, State to);
  /// The members of an object between tags, as GLM-4.5 writes arguments: strings as they are,
  /// others as JSON. Errors: as add(); GrammarError for what is no object with properties.
  /// REQUIRES: parts were made for tags.
  void add_tagged(State from, State to, const TagMark& mark);

  static constexpr uint64_t kMaxFactor = 100;
  static constexpr size_t kMaxDistinct = 10;

 private:
  using Path = std::string;
  [[noreturn]] void fail(const Path& path, const std::string& what) const;
  void schema(const Json& schema, const Path& path, State from, State to);
  void keywords(const Json& schema, const Path& path, State from, State to);
  void reference(const Json& target, const Path& path, State from, State to);
  void any_of(const Json& schema, const char* key, const Path& path, State from, State to);
  Json merged_all_of(const Json& schema, const Path& path, int depth) const;
  Json without_reference(const Json& schema, const Path& path, int depth) const;
  const Json& target_of(const Json& reference, const Path& path) const;
  bool enumeration(const Json& schema, const Path& path, State from, State to);
  std::vector<std::string> types_of(const Json& schema, const Path& path) const;
  void typed(const std::string& type, const Json& schema, const Path& path, State from, State to);
  struct Member {
    std::string name;
    const Json* schema;
    Path path;
    bool is_required;
  };
  struct Members {
    std::vector<Member> named;           ///< in their order
    std::set<std::string> names;         ///< of these, and of those that must be absent
    const Json* further;                 ///< the schema of others; null: there are none
    std::vector<Member> patterned = {};  ///< others by what their names match
  };
  Members members_of(const Json& schema, const Path& path) const;
  void object(const Json& schema, const Path& path, State from, State to);
  std::vector<Member> patterned_members(const Json& schema, const Path& path) const;
  void require_apart(const Members& members, const Path& path) const;
  void further_members(const Members& members, const Path& path, State key, State behind);
  void key_like(const Member& member, State from, State to);
  void tagged_string(const Json& schema, const Path& path, State from, State to,
                     const std::string& end);
  void pattern_of(const Json& schema, const Path& path, State from, State to, Spelling spelling);
  void array(const Json& schema, const Path& path, State from, State to);
  bool distinct_array(const Json& schema, const Path& path, State from, State to);
  void string(const Json& schema, const Path& path, State from, State to);
  void integer(const Json& schema, const Path& path, State from, State to);
  void number(const Json& schema, const Path& path, State from, State to);
  /// 1 without one. Errors: GrammarError for one that is not above 0.
  double factor_of(const Json& schema, const Path& path) const;
  void add_multiples(double factor, std::optional<int64_t> least, std::optional<int64_t> most,
                     const Path& path, State from, State to);
  static std::optional<size_t> decimals_of(double factor);
  std::optional<uint64_t> count(const Json& schema, const char* key, const Path& path) const;
  /// A schema that is added several times, once as a rule.
  Rule rule_of(const Json& schema, const std::string& key, const Path& path);
  void finish_rules();

  AutomatonBuilder& builder_;
  JsonParts& parts_;
  const Json& root_;
  std::string where_;
  int depth_ = 0;
  mutable int merges_ = 0;
  std::map<std::string, Rule> rules_;  ///< by where a reference leads, or by what they say
  struct Waiting {
    Json schema;
    Path path;
    Rule rule;
  };
  std::vector<Waiting> waiting_;  ///< rules without ways yet
};

}  // namespace danlu::grammar
