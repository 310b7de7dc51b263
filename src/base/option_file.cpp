#include "base/option_file.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <cstdlib>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/option_json.h"
#include "base/option_text.h"
#include "base/yaml.h"

namespace danlu {
namespace {

constexpr size_t kMaxIncludeDepth = 16;
constexpr int kMaxNesting = 64;
/// The most bytes of the values of all files with every alias and variable written out, a node
/// counted as kNodeBytes beside its text: far above any configuration, and what it becomes fits any
/// machine.
constexpr size_t kMaxExpandedBytes = 32 << 20;
constexpr size_t kNodeBytes = 64;

void require_utf8(std::string_view text, const fs::path& path) {
  try {
    (void)Json(text).dump();  // the writer checks every byte
  } catch (const Json::type_error&) {
    throw UsageError(tr("{}: not UTF-8 text", path.string()));
  }
}

/// A file that cannot be read is a fault of the command line, not of the disk.
std::string content_of(const fs::path& path) {
  try {
    return read_file(path);
  } catch (const IoError& error) {
    throw UsageError(error.what(), error.hint());
  }
}

[[noreturn]] void refuse_expansion(const std::string& where) {
  throw UsageError(
      tr("{}: with aliases (*name) and variables written out, the values are larger than {} MiB",
         where, kMaxExpandedBytes >> 20),
      tr("settings are small; rows belong into a file that --dataset names"));
}

class FileReader {
 public:
  explicit FileReader(const std::function<bool(const std::string&)>& is_group)
      : is_group_(is_group) {}

  void read_text(std::string_view text, const fs::path& path) {
    if (open_files_.size() >= kMaxIncludeDepth) {
      throw UsageError(
          tr("{}: more than {} files include one another", path.string(), kMaxIncludeDepth));
    }
    for (const fs::path& open : open_files_) {
      if (open == path) {
        throw UsageError(
            tr("{}: includes itself by way of {}", path.string(), open_files_.back().string()));
      }
    }
    open_files_.push_back(path);
    const YAML::Node root = parse(text, path);
    spend_aliases(root, 0);
    read_root(root);
    open_files_.pop_back();
  }

  std::vector<OptionFileEntry> take() { return std::move(entries_); }

 private:
  static YAML::Node parse(std::string_view text, const fs::path& path) {
    require_utf8(text, path);
    std::string content(text);
    if (path.extension() == ".json") {
      try {
        (void)parse_json(text, path.string());  // its errors speak of JSON
      } catch (const DataError& error) {
        throw UsageError(error.what());
      }
      content = option_text::json_as_yaml(text);
    }
    try {
      const std::vector<YAML::Node> documents = YAML::LoadAll(content);
      for (size_t i = 1; i < documents.size(); ++i) {
        if (documents[i].IsNull()) continue;  // a marker at the end
        throw UsageError(tr("{}:{}: a second document begins here; one file is one "
                            "configuration",
                            path.string(), documents[i].Mark().line + 1),
                         tr("remove the line ---, or put the rest into a file of its own"));
      }
      return documents.empty() ? YAML::Node() : documents.front();
    } catch (const YAML::Exception& e) {
      throw UsageError(tr("{}:{}:{}: not valid YAML: {}", path.string(), e.mark.line + 1,
                          e.mark.column + 1, translated_filled(e.msg)));
    }
  }

  std::string where(const YAML::Node& node) const {
    const std::string file = open_files_.back().string();
    return node.Mark().is_null() ? file : fmt::format("{}:{}", file, node.Mark().line + 1);
  }

  /// Aliases make nodes appear many times without a byte more in memory; reading them would.
  void spend_aliases(const YAML::Node& node, int depth) {
    if (depth > kMaxNesting) throw UsageError(tr("{}: nested too deeply", where(node)));
    spend(kNodeBytes + (node.IsScalar() ? node.Scalar().size() : 0));
    for (const auto& item : node) {
      if (node.IsMap()) {
        spend_aliases(item.first, depth + 1);
        spend_aliases(item.second, depth + 1);
      } else {
        spend_aliases(item, depth + 1);
      }
    }
  }

  void spend(size_t bytes) {
    expanded_bytes_ += bytes;
    if (expanded_bytes_ > kMaxExpandedBytes) refuse_expansion(open_files_.back().string());
  }

  std::string expanded(const std::string& text, const YAML::Node& at) {
    std::string out = expand_variables(text, where(at));
    if (out.size() > text.size()) spend(out.size() - text.size());
    return out;
  }

  void read_root(const YAML::Node& root) {
    if (!root.IsDefined() || root.IsNull()) return;
    if (!root.IsMap()) {
      throw UsageError(tr("{}: expected `name: value` lines", where(root)));
    }
    refuse_repeated_keys(root);
    // Included files first, wherever the key stands: the including file overrides them.
    for (const auto& pair : root) {
      if (key_of(pair.first) == "include") read_includes(pair.second);
    }
    for (const auto& pair : root) {
      const std::string key = key_of(pair.first);
      if (key == "ENV" || key == "env") set_environment(pair.second);
    }
    for (const auto& pair : root) read_entry(key_of(pair.first), pair.first, pair.second, true);
  }

  /// YAML forbids them, its readers differ in which one they take.
  void refuse_repeated_keys(const YAML::Node& map) const {
    std::map<std::string, YAML::Node> seen;
    for (const auto& pair : map) {
      const std::string key = key_of(pair.first);
      const auto [at, fresh] = seen.emplace(key, pair.first);
      if (fresh) continue;
      throw UsageError(tr("{}: '{}' is written twice; it stands at {} too", where(pair.first), key,
                          where(at->second)),
                       tr("keep one of them"));
    }
  }

  std::string key_of(const YAML::Node& key) const {
    if (!key.IsScalar()) throw UsageError(tr("{}: a key must be a word", where(key)));
    return key.Scalar();
  }

  void read_includes(const YAML::Node& value) {
    std::vector<std::string> names;
    if (value.IsScalar()) names.push_back(value.Scalar());
    if (value.IsSequence()) {
      for (const YAML::Node& name : value) {
        if (name.IsScalar()) names.push_back(name.Scalar());
      }
    }
    if (names.empty()) {
      throw UsageError(tr("{}: include: expected a file or a list of files", where(value)));
    }
    for (const std::string& name : names) {
      const fs::path path = open_files_.back().parent_path() / expanded(name, value);
      read_text(content_of(path), path.lexically_normal());
    }
  }

  void set_environment(const YAML::Node& value) {
    if (!value.IsMap()) {
      throw UsageError(tr("{}: ENV: expected a map of variables", where(value)));
    }
    refuse_repeated_keys(value);
    for (const auto& pair : value) {
      const std::string name = key_of(pair.first);
      if (!pair.second.IsScalar() || name.empty() || name.find('=') != std::string::npos) {
        throw UsageError(tr("{}: ENV: expected `NAME: value`", where(pair.first)));
      }
      ::setenv(name.c_str(), expanded(pair.second.Scalar(), pair.second).c_str(), 1);
    }
  }

  void read_entry(const std::string& key, const YAML::Node& at, const YAML::Node& value, bool top) {
    if (top && (key == "include" || key == "ENV" || key == "env")) return;
    if (!value.IsDefined() || value.IsNull()) return;
    if (top && value.IsMap() && is_group_(key)) {
      refuse_repeated_keys(value);
      for (const auto& pair : value) {
        read_entry(key_of(pair.first), pair.first, pair.second, false);
      }
      return;
    }
    if (value.IsMap() && is_group_(key + ".")) {
      refuse_repeated_keys(value);
      for (const auto& pair : value) {
        read_entry(key + "." + key_of(pair.first), pair.first, pair.second, false);
      }
      return;
    }
    OptionFileEntry entry;
    entry.key = key;
    entry.origin = where(at);
    entry.file = open_files_.back().string();
    entry.json = dump_text(to_json(value));
    if (value.IsScalar()) {
      entry.text = expanded(value.Scalar(), value);
    } else if (value.IsSequence()) {
      entry.kind = OptionFileEntry::Kind::kList;
      entry.text = option_text::list_text(texts_of(value));
    } else {
      entry.kind = OptionFileEntry::Kind::kMap;
      entry.text = entry.json;
    }
    entries_.push_back(std::move(entry));
  }

  std::vector<std::string> texts_of(const YAML::Node& sequence) {
    std::vector<std::string> out;
    for (const YAML::Node& element : sequence) {
      out.push_back(element.IsScalar() ? expanded(element.Scalar(), element)
                                       : dump_text(to_json(element)));
    }
    return out;
  }

  Json to_json(const YAML::Node& node) {
    if (node.IsScalar()) return yaml_scalar(expanded(node.Scalar(), node), node.Tag() != "!");
    if (node.IsSequence()) {
      Json out = Json::array();
      for (const YAML::Node& element : node) out.push_back(to_json(element));
      return out;
    }
    if (node.IsMap()) {
      refuse_repeated_keys(node);
      Json out = Json::object();
      for (const auto& pair : node) out[key_of(pair.first)] = to_json(pair.second);
      return out;
    }
    return nullptr;
  }

  const std::function<bool(const std::string&)>& is_group_;
  std::vector<fs::path> open_files_;
  size_t expanded_bytes_ = 0;
  std::vector<OptionFileEntry> entries_;
};

}  // namespace

std::string expand_variables(std::string_view text, const std::string& where) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t open = text.find("${", at);
    const size_t close = open == text.npos ? text.npos : text.find('}', open);
    if (close == text.npos) {
      out += text.substr(at);
      break;
    }
    out += text.substr(at, open - at);
    const std::string_view inside = text.substr(open + 2, close - open - 2);
    const size_t fallback = inside.find(":-");
    const std::string name(inside.substr(0, fallback));
    const char* value = std::getenv(name.c_str());
    if (value && (*value || fallback == inside.npos)) {
      out += value;
    } else if (fallback != inside.npos) {
      out += inside.substr(fallback + 2);
    } else {
      throw UsageError(tr("{}: environment variable {} is not set", where, name),
                       tr("set it, or write ${{{}:-default}}", name));
    }
    if (out.size() > kMaxExpandedBytes) refuse_expansion(where);
    at = close + 1;
  }
  return out;
}

std::vector<OptionFileEntry> read_option_text(
    std::string_view text, const fs::path& origin,
    const std::function<bool(const std::string&)>& is_group) {
  FileReader reader(is_group);
  reader.read_text(text, origin.lexically_normal());
  return reader.take();
}

std::vector<OptionFileEntry> read_option_file(
    const fs::path& path, const std::function<bool(const std::string&)>& is_group) {
  return read_option_text(content_of(path), path, is_group);
}

}  // namespace danlu
