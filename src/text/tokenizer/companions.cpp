#include "text/tokenizer/companions.h"

#include <algorithm>
#include <charconv>

#include "base/file.h"
#include "text/tokenizer/json_fields.h"
#include "text/tokenizer/vocabulary.h"

namespace danlu::text {

namespace {

/// Reads an object from `name` if it is there; a broken file is the model's fault, not a data
/// set's.
Json read_object(const fs::path& directory, const char* name, Companions& companions) {
  const fs::path path = directory / name;
  if (!fs::is_regular_file(path)) return Json::object();
  Json value;
  try {
    value = read_json_file(path);
  } catch (const DataError& error) {
    throw ModelError(error.what());
  }
  if (!value.is_object()) throw ModelError(tr("{}: must hold an object", path.string()));
  companions.files.push_back(path);
  return value;
}

/// A token is written as a string or as {"content": …}; null and others give nothing.
std::optional<std::string> token_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object()) {
    const auto content = value.find("content");
    if (content != value.end() && content->is_string()) return content->get<std::string>();
  }
  return std::nullopt;
}

void fill(std::optional<std::string>& slot, const Json& object, const char* key) {
  if (slot) return;
  const auto it = object.find(key);
  if (it != object.end()) slot = token_text(*it);
}

void read_special(const Json& object, SpecialTokens& special) {
  fill(special.bos, object, "bos_token");
  fill(special.eos, object, "eos_token");
  fill(special.pad, object, "pad_token");
  fill(special.unk, object, "unk_token");
  // Newer files call the list "extra_special_tokens".
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
    const auto list = object.find(key);
    if (list == object.end() || !list->is_array()) continue;
    for (const Json& item : *list) {
      const auto text = token_text(item);
      auto& all = special.additional;
      if (text && std::find(all.begin(), all.end(), *text) == all.end()) all.push_back(*text);
    }
  }
}

TokenId checked_id(int64_t id, const std::string& origin) {
  if (id < 0 || id > Vocabulary::kMaxId) {
    throw ModelError(
        tr("{}: token id {} must be between 0 and {}", origin, id, Vocabulary::kMaxId));
  }
  return static_cast<TokenId>(id);
}

void read_added_decoder(const Json& config, const std::string& origin,
                        std::vector<AddedToken>& added) {
  const auto decoder = config.find("added_tokens_decoder");
  if (decoder == config.end() || !decoder->is_object()) return;
  for (const auto& [key, value] : decoder->items()) {
    int64_t id = -1;
    std::from_chars(key.data(), key.data() + key.size(), id);
    if (!value.is_object()) {
      throw ModelError(tr("{}: added_tokens_decoder.{} must be an object", origin, key));
    }
    AddedToken token;
    token.content = field<std::string>(value, "content", origin);
    token.id = checked_id(id, origin);
    token.single_word = field_or(value, "single_word", false, origin);
    token.lstrip = field_or(value, "lstrip", false, origin);
    token.rstrip = field_or(value, "rstrip", false, origin);
    token.special = field_or(value, "special", false, origin);
    token.normalized = field_or(value, "normalized", !token.special, origin);
    added.push_back(std::move(token));
  }
}

void read_added_map(const Json& map, const std::string& origin, std::vector<AddedToken>& added) {
  for (const auto& [content, id] : map.items()) {
    const auto same = [&](const AddedToken& token) { return token.content == content; };
    if (std::any_of(added.begin(), added.end(), same)) continue;
    if (!id.is_number_integer()) {
      throw ModelError(tr("{}: the id of \"{}\" must be an integer", origin, content));
    }
    AddedToken token;
    token.content = content;
    token.id = checked_id(id.get<int64_t>(), origin);
    added.push_back(std::move(token));
  }
}

/// A template as a string, or as a list of {name, template}: "default" (else the first) and
/// "tool_use".
void take_templates(const Json& value, Companions& companions) {
  if (value.is_string()) companions.chat_template = value.get<std::string>();
  if (!value.is_array()) return;
  std::optional<std::string> first, chosen;
  for (const Json& item : value) {
    if (!item.is_object() || !item.contains("template") || !item["template"].is_string()) continue;
    const std::string text = item["template"].get<std::string>();
    const auto name = item.find("name");
    if (name != item.end() && *name == "default") chosen = text;
    if (name != item.end() && *name == "tool_use") companions.tool_template = text;
    if (!first) first = text;
  }
  companions.chat_template = chosen.value_or(first.value_or(""));
}

void read_chat_templates(const fs::path& directory, Companions& companions) {
  const fs::path jinja = directory / "chat_template.jinja",
                 with_tools = directory / "additional_chat_templates" / "tool_use.jinja";
  if (fs::is_regular_file(jinja)) {
    companions.files.push_back(jinja);
    companions.chat_template = read_file(jinja);
    if (fs::is_regular_file(with_tools)) {
      companions.files.push_back(with_tools);
      companions.tool_template = read_file(with_tools);
    }
    return;
  }
  if (companions.config.contains("chat_template"))
    return take_templates(companions.config["chat_template"], companions);
  const Json processor = read_object(directory, "chat_template.json", companions);
  if (processor.contains("chat_template")) take_templates(processor["chat_template"], companions);
}

/// Tokens that the configuration names are special, whatever their own entry says.
void mark_special(Companions& companions) {
  const std::vector<std::string> named = named_tokens(companions.special);
  for (AddedToken& token : companions.added) {
    if (std::find(named.begin(), named.end(), token.content) != named.end()) token.special = true;
  }
}

}  // namespace

std::string Companions::tokenizer_class() const {
  const auto it = config.find("tokenizer_class");
  return it != config.end() && it->is_string() ? it->get<std::string>() : std::string();
}

std::optional<bool> Companions::flag(const char* key) const {
  const auto it = config.find(key);
  if (it == config.end() || !it->is_boolean()) return std::nullopt;
  return it->get<bool>();
}

Companions read_companions(const fs::path& directory) {
  Companions companions;
  companions.config = read_object(directory, "tokenizer_config.json", companions);
  const Json map = read_object(directory, "special_tokens_map.json", companions);
  const Json added = read_object(directory, "added_tokens.json", companions);
  read_special(companions.config, companions.special);
  read_special(map, companions.special);
  read_added_decoder(companions.config, (directory / "tokenizer_config.json").string(),
                     companions.added);
  read_added_map(added, (directory / "added_tokens.json").string(), companions.added);
  mark_special(companions);
  read_chat_templates(directory, companions);
  return companions;
}

Companions companions_of(Json config, const std::string& origin) {
  Companions companions;
  companions.config = std::move(config);
  read_special(companions.config, companions.special);
  read_added_decoder(companions.config, origin, companions.added);
  mark_special(companions);
  if (companions.config.contains("chat_template"))
    take_templates(companions.config["chat_template"], companions);
  return companions;
}

std::vector<std::string> named_tokens(const SpecialTokens& special) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(name);
    }
  };
  for (const auto* slot : {&special.bos, &special.eos, &special.unk, &special.pad}) {
    if (*slot) add(**slot);
  }
  for (const std::string& name : special.additional) add(name);
  return names;
}

void add_companion_tokens(const Companions& companions,
                          FunctionRef<TokenId(const std::string&)> find, AddedTokens& added) {
  for (AddedToken token : companions.added) {
    // The vocabulary's own id counts, as in transformers.
    if (const TokenId known = find(token.content); known >= 0) token.id = known;
    added.add(std::move(token));
  }
  for (const std::string& name : named_tokens(companions.special)) {
    if (added.by_content(name)) continue;
    const TokenId id = find(name);
    if (id < 0) continue;
    AddedToken token;
    token.content = name;
    token.id = id;
    token.special = true;
    added.add(std::move(token));
  }
}

}  // namespace danlu::text
