#include "text/new_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/temporary.h"
#include "text/gguf_tokenizer.h"

namespace danlu::text {
namespace {

constexpr const char* kTokenizerFile = "tokenizer.json";

struct NumberedToken {
  const NewToken* token;
  TokenId id;
  bool is_new;
};

/// Ids as Hugging Face gives them: behind all that are there, in the order of the list.
std::vector<NumberedToken> numbered(const Tokenizer& tokenizer,
                                    const std::vector<NewToken>& tokens) {
  std::vector<NumberedToken> all;
  std::map<std::string, TokenId> given;
  auto next = static_cast<TokenId>(tokenizer.size());
  for (const NewToken& token : tokens) {
    if (given.count(token.content)) continue;
    const std::optional<TokenId> known = tokenizer.token_to_id(token.content);
    const TokenId id = known ? *known : next++;
    given.emplace(token.content, id);
    all.push_back({&token, id, !known});
  }
  return all;
}

/// What Hugging Face's files say of an added token. Tokenizers without a tokenizer.json look for it
/// in texts as they stand.
Json entry_of(const NumberedToken& numbered, bool beside_json) {
  const bool special = numbered.token->special;
  return {{"content", numbered.token->content},
          {"single_word", false},
          {"lstrip", false},
          {"rstrip", false},
          {"normalized", beside_json && !special},
          {"special", special}};
}

/// One that is there already may become special; no more of it changes.
void add_entry(Json& list, const NumberedToken& numbered) {
  for (Json& entry : list) {
    if (!entry.is_object() || entry.value("content", "") != numbered.token->content) continue;
    if (numbered.token->special && !entry.value("special", false)) {
      entry["special"] = true;
      entry["normalized"] = false;
    }
    return;
  }
  Json entry = {{"id", numbered.id}};
  entry.update(entry_of(numbered, /*beside_json=*/true));
  const auto behind = std::find_if(list.begin(), list.end(), [&](const Json& other) {
    return other.is_object() && other.value("id", TokenId{0}) > numbered.id;
  });
  list.insert(behind, std::move(entry));
}

/// The file's object; an empty one where there is no file.
Json object_of(const fs::path& file) {
  if (!fs::is_regular_file(file)) return Json::object();
  Json object;
  try {
    object = read_json_file(file);
  } catch (const DataError& error) {
    throw ModelError(error.what());
  }
  if (!object.is_object()) throw ModelError(tr("{}: must hold an object", file.string()));
  return object;
}

/// Behind the string that begins at `at` with its quotation mark.
size_t end_of_string(std::string_view text, size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at)
    if (text[at] == '\\') ++at;
  return std::min(at + 1, text.size());
}

/// Behind the value that begins at `at`, of JSON that is known to be whole.
size_t end_of_value(std::string_view text, size_t at) {
  int depth = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '"') {
      at = end_of_string(text, at);
    } else if (depth == 0 && (c == ',' || c == '}' || c == ']')) {
      return at;
    } else {
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') --depth;
      ++at;
    }
    if (depth == 0 && (c == '"' || c == '}' || c == ']')) return at;
  }
  return at;
}

/// Where the value of a member of the outermost object is; empty where it has none of that name.
std::pair<size_t, size_t> member_of(std::string_view text, std::string_view name) {
  constexpr std::string_view kBlanks = " \t\r\n";
  size_t at = text.find('{') + 1;
  while ((at = text.find('"', at)) != text.npos) {
    const size_t key_end = end_of_string(text, at);
    const bool is_it = text.substr(at + 1, key_end - at - 2) == name;
    const size_t begin = text.find_first_not_of(kBlanks, text.find(':', key_end) + 1);
    const size_t end = end_of_value(text, begin);
    if (is_it) return {begin, end};
    at = end;
  }
  return {0, 0};
}

/// The file's text but for its list of added tokens stays byte by byte: a vocabulary is long.
void write_tokenizer_json(const fs::path& file, const std::vector<NumberedToken>& tokens) {
  std::string text = read_file(file);
  const auto [begin, end] = member_of(text, "added_tokens");
  Json list = Json::array();
  if (begin < end)
    list = parse_json(std::string_view(text).substr(begin, end - begin), file.string());
  if (!list.is_array()) list = Json::array();
  for (const NumberedToken& token : tokens) add_entry(list, token);
  const std::string written = list.dump(2, ' ', false, Json::error_handler_t::replace);
  if (begin < end) {
    text.replace(begin, end - begin, written);
  } else {
    text.insert(text.find('{') + 1, "\"added_tokens\": " + written + ",");
  }
  write_file_atomic(file, text);
}

/// Names of special tokens, as texts or as objects.
void add_names(Json& object, const std::vector<NumberedToken>& tokens) {
  // Newer files call it extra_special_tokens, where it may be an object of named ones.
  const bool is_newer = !object.contains("additional_special_tokens") &&
                        object.contains("extra_special_tokens") &&
                        object["extra_special_tokens"].is_array();
  Json& list = object[is_newer ? "extra_special_tokens" : "additional_special_tokens"];
  if (!list.is_array()) list = Json::array();
  for (const NumberedToken& numbered : tokens) {
    const std::string& content = numbered.token->content;
    const bool is_there = std::any_of(list.begin(), list.end(), [&](const Json& name) {
      return name == Json(content) || (name.is_object() && name.value("content", "") == content);
    });
    if (numbered.token->special && !is_there) list.push_back(content);
  }
  if (list.empty()) object.erase(is_newer ? "extra_special_tokens" : "additional_special_tokens");
}

void write_tokenizer_config(const fs::path& file, const std::vector<NumberedToken>& tokens,
                            bool beside_json) {
  Json config = object_of(file);
  // Beside a tokenizer.json newer files leave it out.
  const bool lists = !beside_json || config.contains("added_tokens_decoder");
  Json& decoder = config["added_tokens_decoder"];
  if (!decoder.is_object()) decoder = Json::object();
  for (const NumberedToken& numbered : tokens) {
    const std::string id = std::to_string(numbered.id);
    const bool is_there = decoder.contains(id);
    if (lists && !is_there) decoder[id] = entry_of(numbered, beside_json);
    if (is_there && numbered.token->special && decoder[id].is_object())
      decoder[id]["special"] = true;
  }
  if (!lists) config.erase("added_tokens_decoder");
  add_names(config, tokens);
  write_json_file(file, config);
}

void write_added_tokens(const fs::path& file, const std::vector<NumberedToken>& tokens) {
  Json map = object_of(file);
  for (const NumberedToken& token : tokens)
    if (token.is_new) map[token.token->content] = token.id;
  write_json_file(file, map);
}

/// Whether the loader of tokenizers may look at a file of this name.
bool is_of_tokenizer(const fs::path& file) {
  static const std::vector<std::string> kEndings = {".json", ".txt", ".model", ".tiktoken",
                                                    ".jinja"};
  const std::string name = file.filename().string();
  return std::find(kEndings.begin(), kEndings.end(), file.extension().string()) != kEndings.end() &&
         !name.ends_with(".index.json") && name != "trainer_state.json";
}

/// The directory whose files the tokenizer at `path` is of. Errors: ModelError.
fs::path directory_of(const fs::path& path) {
  const auto refuse = [&](const std::string& what) {
    throw ModelError(
        tr("{}: new tokens cannot be added to {}", path.string(), what),
        tr("name a directory with tokenizer.json or tokenizer.model: --tokenizer DIR"));
  };
  if (is_gguf(path)) refuse(tr("a GGUF file"));
  if (!fs::is_regular_file(path)) return path;
  const std::string name = path.filename().string();
  if (name != "vocab.json" && name != "merges.txt" &&
      (name.ends_with("vocab.json") || name.ends_with("merges.txt")))
    refuse(name);
  const fs::path parent = path.parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

void copy_files(const fs::path& from, const fs::path& to) {
  for (const auto& entry : fs::directory_iterator(from)) {
    if (entry.is_regular_file() && is_of_tokenizer(entry.path()))
      write_file_atomic(to / entry.path().filename(), read_file(entry.path()));
  }
  const fs::path more = "additional_chat_templates";
  if (!fs::is_directory(from / more)) return;
  fs::create_directories(to / more);
  for (const auto& entry : fs::directory_iterator(from / more)) {
    if (entry.is_regular_file())
      write_file_atomic(to / more / entry.path().filename(), read_file(entry.path()));
  }
}

/// Errors: ModelError where a token is not found in a text.
void require_found(const fs::path& path, const Tokenizer& tokenizer,
                   const std::vector<NumberedToken>& tokens) {
  for (const NumberedToken& token : tokens) {
    const std::string& content = token.token->content;
    if (tokenizer.encode(content, /*add_special=*/false) == std::vector<TokenId>{token.id})
      continue;
    throw ModelError(tr("{}: \"{}\" did not become a token of this tokenizer, whose files cannot "
                        "hold new ones",
                        path.string(), content),
                     tr("name a directory with tokenizer.json: --tokenizer DIR"));
  }
}

}  // namespace

void write_new_tokens(const fs::path& directory, const std::vector<NewToken>& tokens) {
  const auto tokenizer = Tokenizer::load(directory);
  const std::vector<NumberedToken> all = numbered(*tokenizer, tokens);
  const bool has_json = fs::is_regular_file(directory / kTokenizerFile);
  if (has_json) write_tokenizer_json(directory / kTokenizerFile, all);
  write_tokenizer_config(directory / "tokenizer_config.json", all, has_json);
  const fs::path map = directory / "special_tokens_map.json",
                 added = directory / "added_tokens.json";
  if (fs::is_regular_file(map)) {
    Json names = object_of(map);
    add_names(names, all);
    write_json_file(map, names);
  }
  if (!has_json || fs::is_regular_file(added)) write_added_tokens(added, all);
}

GrownTokenizer load_with_tokens(const fs::path& path, const std::vector<NewToken>& tokens) {
  const auto plain = Tokenizer::load(path);
  if (tokens.empty()) return {plain, {}};
  const fs::path from = directory_of(path);
  const Temporary made(fs::temp_directory_path() / "danlu-tokenizer", Temporary::Kind::kDirectory);
  if (made.path().empty() || made.fd() < 0) {
    throw IoError(tr("{}: no directory can be made there", fs::temp_directory_path().string()),
                  tr("name another place in the variable TMPDIR"));
  }
  copy_files(from, made.path());
  write_new_tokens(made.path(), tokens);
  const bool is_file = fs::is_regular_file(path);
  GrownTokenizer grown{Tokenizer::load(is_file ? made.path() / path.filename() : made.path()), {}};
  const std::vector<NumberedToken> all = numbered(*plain, tokens);
  require_found(path, *grown.tokenizer, all);
  for (const NumberedToken& token : all)
    if (token.is_new) grown.new_ids.push_back(token.id);
  return grown;
}

}  // namespace danlu::text
