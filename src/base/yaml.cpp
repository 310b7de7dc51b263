#include "base/yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <charconv>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace danlu {
namespace {

constexpr int kMaxYamlNesting = 64;
constexpr size_t kMaxYamlBytes = 32 << 20;
constexpr size_t kYamlNodeBytes = 64;
constexpr std::string_view kYamlTags = "tag:yaml.org,2002:";

template <typename... Base>
std::optional<int64_t> digits_as_number(std::string_view digits, Base... base) {
  int64_t number = 0;
  const char* end = digits.data() + digits.size();
  const auto got = std::from_chars(digits.data(), end, number, base...);
  if (digits.empty() || got.ec != std::errc() || got.ptr != end) return std::nullopt;
  return number;
}

class YamlDocument {
 public:
  YamlDocument(const std::string& origin, const std::string& tag_hint)
      : origin_(origin), tag_hint_(tag_hint) {}

  Json read(std::string_view text) {
    try {
      (void)Json(text).dump();  // the writer checks every byte
    } catch (const Json::type_error&) {
      throw UsageError(tr("{}: not UTF-8 text", origin_));
    }
    try {
      const std::vector<YAML::Node> documents = YAML::LoadAll(std::string(text));
      for (size_t i = 1; i < documents.size(); ++i) {
        if (documents[i].IsNull()) continue;  // a marker at the end
        throw UsageError(tr("{}: a second document begins here; one is read", where(documents[i])));
      }
      return documents.empty() ? Json() : value_of(documents.front(), 0);
    } catch (const YAML::Exception& e) {
      throw UsageError(tr("{}:{}:{}: not valid YAML: {}", origin_, e.mark.line + 1,
                          e.mark.column + 1, translated_filled(e.msg)));
    }
  }

 private:
  std::string where(const YAML::Node& node) const {
    return node.Mark().is_null() ? origin_ : fmt::format("{}:{}", origin_, node.Mark().line + 1);
  }

  /// "" where the document gives none that matters.
  std::string own_tag(const YAML::Node& node) const {
    const std::string tag = node.Tag();
    if (tag.empty() || tag == "?" || tag == "!") return "";
    if (tag.starts_with(kYamlTags)) return tag.substr(kYamlTags.size());
    throw UsageError(tr("{}: the tag {} is not known", where(node), tag), tag_hint_);
  }

  Json value_of(const YAML::Node& node, int depth) {
    if (depth > kMaxYamlNesting) throw UsageError(tr("{}: nested too deeply", where(node)));
    // Aliases make nodes appear many times without a byte more in the file.
    bytes_ += kYamlNodeBytes + (node.IsScalar() ? node.Scalar().size() : 0);
    if (bytes_ > kMaxYamlBytes) {
      throw UsageError(tr("{}: with aliases (*name) written out, the values are larger than {} MiB",
                          origin_, kMaxYamlBytes >> 20));
    }
    const std::string tag = own_tag(node);
    if (node.IsScalar()) return yaml_scalar(node.Scalar(), node.Tag() != "!" && tag != "str");
    if (node.IsSequence()) {
      Json out = Json::array();
      for (const YAML::Node& element : node) out.push_back(value_of(element, depth + 1));
      return out;
    }
    if (!node.IsMap()) return nullptr;
    Json out = Json::object();
    for (const auto& pair : node) {
      if (!pair.first.IsScalar())
        throw UsageError(tr("{}: a key must be a word", where(pair.first)));
      const std::string& key = pair.first.Scalar();
      if (out.contains(key)) {
        throw UsageError(tr("{}: '{}' is written twice", where(pair.first), key),
                         tr("keep one of them"));
      }
      out[key] = value_of(pair.second, depth + 1);
    }
    return out;
  }

  const std::string& origin_;
  const std::string& tag_hint_;
  size_t bytes_ = 0;
};

}  // namespace

Json yaml_scalar(const std::string& text, bool is_plain) {
  if (!is_plain) return text;
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  if (text == "null" || text == "~" || text == "Null" || text == "NULL" || text.empty())
    return nullptr;
  std::string_view digits = text;
  if (digits.starts_with("0x")) {
    if (const auto number = digits_as_number(digits.substr(2), 16); number && *number >= 0)
      return *number;
  }
  if (digits.starts_with("0o")) {
    if (const auto number = digits_as_number(digits.substr(2), 8); number && *number >= 0)
      return *number;
  }
  if (digits.starts_with("+")) digits.remove_prefix(1);
  if (digits.starts_with("-") && digits.size() < text.size()) return text;  // "+-1"
  if (const auto number = digits_as_number(digits)) return *number;
  // from_chars reads "inf" and "nan" too, which JSON cannot hold.
  if (digits.find_first_not_of("0123456789+-.eE") == std::string_view::npos) {
    double number = 0;
    const char* end = digits.data() + digits.size();
    const auto got = std::from_chars(digits.data(), end, number);
    if (got.ec == std::errc() && got.ptr == end) return number;
  }
  return text;
}

Json parse_yaml(std::string_view text, const std::string& origin, const std::string& tag_hint) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  return YamlDocument(origin, tag_hint).read(text);
}

Json read_yaml_file(const std::filesystem::path& path, const std::string& tag_hint) {
  std::string text;
  try {
    text = read_file(path);
  } catch (const IoError& error) {
    throw UsageError(error.what(), error.hint());
  }
  return parse_yaml(text, path.string(), tag_hint);
}

}  // namespace danlu
