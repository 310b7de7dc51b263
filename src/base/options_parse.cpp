// Turns words, files, variables and profiles into options.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <functional>

#include "base/error.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "base/option_elements.h"
#include "base/option_file.h"
#include "base/option_text.h"
#include "base/options.h"

namespace danlu {
namespace {

using option_text::normalise_name;

bool is_switch(const OptionSpec& spec) {
  return spec.type == OptionType::kBool || spec.may_be_alone;
}

bool is_config_path(std::string_view word) {
  if (word.ends_with(".index.json")) return false;  // of weights in several files
  return word.ends_with(".yaml") || word.ends_with(".yml") || word.ends_with(".json");
}

/// "--name", "--name=…" or "-x"; not "-", "--", "-3", "-.5" nor prose that begins with dashes.
bool looks_like_flag(std::string_view word) {
  if (word.size() < 2 || word[0] != '-' || word == "--") return false;
  std::string_view name = word.substr(word[1] == '-' ? 2 : 1);
  name = name.substr(0, name.find('='));
  if (name.empty() || !(std::isalpha(static_cast<unsigned char>(name[0])) || name[0] == '_')) {
    return false;
  }
  return std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-' || c == '.';
  });
}

std::string hint_for(const OptionTable& table, const std::string& spelled,
                     std::string_view dashes) {
  // Names without effect are many, and proposed only where no other is near.
  for (const bool inert : {false, true}) {
    std::vector<std::string> known;
    for (const OptionSpec& spec : table.specs()) {
      if (option_text::is_inert(spec) != inert) continue;
      known.push_back(spec.name);
      for (const std::string& alias : spec.aliases) {
        if (alias.size() > 1) known.push_back(alias);
      }
    }
    if (const auto near = nearest_name(normalise_name(spelled), known)) {
      return tr("did you mean {}{}?", dashes, *near);
    }
  }
  return tr("danlu {} --help lists the names", table.command());
}

/// What the command line said about one option.
struct Given {
  std::string spelled;
  std::string text;
  std::vector<std::string> spellings;  ///< all, in order
};

/// The words of one command line, sorted into flags, files and the rest.
class WordReader {
 public:
  WordReader(const OptionTable& table, const std::vector<std::string>& words, bool accepts_config)
      : table_(table), words_(words), accepts_config_(accepts_config) {}

  void read() {
    while (at_ < words_.size()) {
      const std::string& word = words_[at_++];
      if (word == "--") {
        positional.insert(positional.end(), words_.begin() + static_cast<ptrdiff_t>(at_),
                          words_.end());
        break;
      }
      if (looks_like_flag(word)) {
        read_flag(word);
      } else {
        read_word(word);
      }
    }
  }

  /// The first words become the options that words may give and neither a flag nor a file gives.
  void place_words(const std::vector<OptionFileEntry>& entries) {
    const auto in_file = [&](const OptionSpec& spec) {
      return std::any_of(entries.begin(), entries.end(), [&](const OptionFileEntry& entry) {
        return table_.find_spec(entry.key) == &spec;
      });
    };
    for (int place = 1; !positional.empty(); ++place) {
      const auto& specs = table_.specs();
      const auto spec = std::find_if(specs.begin(), specs.end(),
                                     [&](const OptionSpec& s) { return s.word == place; });
      if (spec == specs.end()) return;
      if (flags.contains(spec->name) || in_file(*spec)) continue;
      store(*spec, "--" + spec->name, positional.front());
      positional.erase(positional.begin());
    }
  }

  std::map<std::string, Given> flags;
  std::vector<std::string> config_paths, positional;

 private:
  void read_word(const std::string& word) {
    if (accepts_config_ && is_config_path(word)) {
      config_paths.push_back(word);
      return;
    }
    const size_t equals = word.find('=');
    if (accepts_config_ && equals != word.npos && equals > 0) {
      if (const OptionSpec* spec = table_.find_spec(word.substr(0, equals))) {
        store(*spec, word.substr(0, equals), word.substr(equals + 1));
        return;
      }
    }
    positional.push_back(word);
  }

  void read_flag(const std::string& word) {
    const size_t equals = word.find('=');
    const std::string spelled = word.substr(0, equals);
    std::optional<std::string> attached;
    if (equals != word.npos) attached = word.substr(equals + 1);
    if (const OptionSpec* spec = table_.find_spec(spelled))
      return read_value(*spec, spelled, attached);
    const std::string name = normalise_name(spelled);
    if (name.starts_with("no_")) {
      const OptionSpec* spec = table_.find_spec(name.substr(3));
      // Which of the names without effect are switches elsewhere, the table does not say.
      if (spec && (is_switch(*spec) || option_text::is_inert(*spec)))
        return read_negation(*spec, spelled, attached);
    }
    if (accepts_config_ && name == "config") {
      config_paths.push_back(attached ? *attached : next_value(spelled));
      return;
    }
    refuse_unknown(spelled);
  }

  void read_value(const OptionSpec& spec, const std::string& spelled,
                  const std::optional<std::string>& attached) {
    if (attached) return store(spec, spelled, *attached);
    const bool has_next = at_ < words_.size() && !looks_like_flag(words_[at_]);
    if (spec.type == OptionType::kBool) {
      const bool takes_next = has_next && option_text::parse_bool(words_[at_]);
      return store(spec, spelled, takes_next ? words_[at_++] : "true");
    }
    if (option_text::is_inert(spec) && !has_next) return store(spec, spelled, "true");
    if (spec.type == OptionType::kList) return read_list(spec, spelled);
    if (spec.may_be_alone && (!has_next || is_for_command(words_[at_])))
      return store(spec, spelled, "true");
    store(spec, spelled, next_value(spelled));
  }

  /// A word that says something by itself, and is not the value of a flag that needs none.
  bool is_for_command(const std::string& word) const {
    const size_t equals = word.find('=');
    return accepts_config_ &&
           (is_config_path(word) ||
            (equals != word.npos && table_.find_spec(word.substr(0, equals)) != nullptr));
  }

  void read_list(const OptionSpec& spec, const std::string& spelled) {
    std::vector<std::string> elements;
    bool any = false;
    while (at_ < words_.size() && words_[at_] != "--" && !looks_like_flag(words_[at_])) {
      any = true;
      for (std::string& element : option_text::elements_of(spec, words_[at_++])) {
        elements.push_back(std::move(element));
      }
    }
    if (!any) refuse_missing(spelled);
    store(spec, spelled, option_text::list_text(elements));
  }

  void read_negation(const OptionSpec& spec, const std::string& spelled,
                     const std::optional<std::string>& attached) {
    bool negated = true;
    if (attached) {
      const auto value = option_text::parse_bool(*attached);
      if (!value) {
        throw UsageError(
            tr("{}{}: expected true or false, got '{}'", prefix(), spelled, *attached));
      }
      negated = *value;
    } else if (at_ < words_.size()) {
      if (const auto value = option_text::parse_bool(words_[at_])) {
        negated = *value;
        ++at_;
      }
    }
    store(spec, spelled, negated ? "false" : "true");
  }

  std::string next_value(const std::string& spelled) {
    if (at_ >= words_.size() || words_[at_] == "--" || looks_like_flag(words_[at_])) {
      refuse_missing(spelled);
    }
    return words_[at_++];
  }

  [[noreturn]] void refuse_missing(const std::string& spelled) const {
    throw UsageError(tr("{}{}: a value is missing", prefix(), spelled),
                     tr("a value that begins with a dash is written {}=VALUE", spelled));
  }

  void store(const OptionSpec& spec, const std::string& spelled, const std::string& raw) {
    const std::string where = fmt::format("{}{}", prefix(), spelled);
    std::string text = option_text::canonical(spec, raw, where);
    const auto [at, first] = flags.try_emplace(spec.name);
    Given& given = at->second;
    given.spellings.push_back(spelled);
    if (!first && spec.type == OptionType::kList && !option_text::is_inert(spec)) {
      std::vector<std::string> all = option_text::split_list(given.text);
      for (std::string& element : option_text::split_list(text)) all.push_back(std::move(element));
      given.text = option_text::list_text(all);
      return;
    }
    if (!first && given.text != text && !option_text::is_inert(spec)) {
      log::notice("{} {} takes the place of the earlier {} {}: the last one counts", spelled, text,
                  given.spelled, given.text);
    }
    // One inert option stands for many names: what is switched on stays visible.
    if (!first && option_text::is_inert(spec) && option_text::is_neutral(spec, text)) return;
    given.spelled = spelled;
    given.text = std::move(text);
  }

  [[noreturn]] void refuse_unknown(const std::string& spelled) const {
    throw UsageError(tr("{}unknown flag {}", prefix(), spelled), hint_for(table_, spelled, "--"));
  }

  std::string prefix() const { return fmt::format("[{}] ", table_.command()); }

  const OptionTable& table_;
  const std::vector<std::string>& words_;
  const bool accepts_config_;
  size_t at_ = 0;
};

/// Ignored options -> the names under which files and flags mentioned them, each name once.
std::map<std::string, std::vector<std::string>> ignored_mentions(
    const OptionTable& table, const std::vector<OptionFileEntry>& entries,
    const std::map<std::string, Given>& flags) {
  std::map<std::string, std::vector<std::string>> out;
  for (const OptionFileEntry& entry : entries) {
    const OptionSpec* spec = table.find_spec(entry.key);
    if (spec && !spec->ignored_because.empty())
      out[spec->name].push_back(entry.origin + ": " + entry.key);
  }
  for (const auto& [name, given] : flags) {
    if (table.find_spec(name)->ignored_because.empty()) continue;
    std::vector<std::string>& names = out[name];
    for (const std::string& spelled : given.spellings) {
      if (std::find(names.begin(), names.end(), spelled) == names.end()) names.push_back(spelled);
    }
  }
  return out;
}

/// Every name that the line and its files give a value to, as written there.
std::vector<TypedName> typed_names(const OptionTable& table,
                                   const std::vector<OptionFileEntry>& entries,
                                   const std::map<std::string, Given>& flags) {
  std::vector<TypedName> out;
  for (const auto& [name, given] : flags) {
    for (const std::string& spelled : given.spellings)
      out.push_back({normalise_name(spelled), name, spelled});
  }
  for (const OptionFileEntry& entry : entries) {
    out.push_back({normalise_name(entry.key), table.find_spec(entry.key)->name,
                   entry.origin + ": " + entry.key});
  }
  return out;
}

std::string group_key(std::string_view heading) {
  std::string out = normalise_name(heading);
  for (char& c : out)
    c = c == ' ' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

/// The text a file gives to `spec`, canonical.
std::string file_text(const OptionSpec& spec, const OptionFileEntry& entry) {
  const std::string where = fmt::format("{}: {}", entry.origin, entry.key);
  if (option_text::is_inert(spec)) return entry.text;
  const bool scalar = entry.kind == OptionFileEntry::Kind::kScalar;
  if (spec.type == OptionType::kJson && !scalar) return entry.json;
  if (spec.takes_map && entry.kind == OptionFileEntry::Kind::kMap)
    return option_text::list_text({entry.json});
  const bool list_to_list =
      spec.type == OptionType::kList && entry.kind == OptionFileEntry::Kind::kList;
  if (!scalar && !list_to_list) {
    throw UsageError(tr("{}: expected one value, got {}", where, entry.text));
  }
  return option_text::canonical(spec, entry.text, where);
}

/// One file may name an option under two names only with one value. Included files may be
/// overridden.
void refuse_contradiction(const OptionFileEntry& entry, const OptionSpec& spec,
                          const OptionFileEntry*& first) {
  if (!first) {
    first = &entry;
    return;
  }
  const bool same_name = normalise_name(entry.key) == normalise_name(first->key);
  if (!same_name && file_text(spec, entry) == file_text(spec, *first)) return;
  throw UsageError(tr("{}: '{}' gives {} a second time; it stands at {} as '{}' too", entry.origin,
                      entry.key, spec.name, first->origin, first->key),
                   tr("keep one of them"));
}

/// Scripts of other systems carry dozens of them: many make one notice, with -v one each.
void report_ignored(const OptionTable& table,
                    const std::map<std::string, std::vector<std::string>>& mentions) {
  constexpr size_t kEach = 2, kNamed = 5;
  if (mentions.size() <= kEach || log::verbose()) {
    for (const auto& [name, mentioned] : mentions) {
      const std::string& why = table.find_spec(name)->ignored_because;
      if (mentioned.size() == 1) {
        log::notice("{} has no effect here: {}", mentioned.front(), why);
      } else {
        log::notice("{} have no effect here: {}", fmt::join(mentioned, ", "), why);
      }
    }
    return;
  }
  std::vector<std::string> names;
  for (const auto& [name, mentioned] : mentions)
    names.insert(names.end(), mentioned.begin(), mentioned.end());
  if (names.size() <= kNamed) {
    log::notice("{} have no effect here (-v says why)", fmt::join(names, ", "));
    return;
  }
  const size_t more = names.size() - kNamed;
  names.resize(kNamed);
  log::notice("{} and {} more have no effect here (-v names them and says why)",
              fmt::join(names, ", "), more);
}

}  // namespace

OptionTable::OptionTable(std::string command, std::string summary, std::string usage,
                         std::vector<OptionSpec> specs)
    : command_(std::move(command)),
      summary_(std::move(summary)),
      usage_(std::move(usage)),
      specs_(std::move(specs)) {
  for (size_t i = 0; i < specs_.size(); ++i) {
    std::vector<std::string> names = specs_[i].aliases;
    names.push_back(specs_[i].name);
    for (const std::string& name : names) {
      const auto [at, fresh] = index_.emplace(normalise_name(name), i);
      if (!fresh && at->second != i) {
        throw InternalError(fmt::format("[{}] '{}' names two options: {} and {}", command_, name,
                                        specs_[at->second].name, specs_[i].name));
      }
    }
  }
}

void OptionTable::set_default(std::string_view name, std::string text) {
  specs_[index_.find(normalise_name(name))->second].default_text = std::move(text);
}

const OptionSpec* OptionTable::find_spec(std::string_view name) const {
  const auto at = index_.find(normalise_name(name));
  return at == index_.end() ? nullptr : &specs_[at->second];
}

void OptionTable::add_profile(OptionProfile profile) {
  std::vector<std::pair<std::string, std::string>> all(profile.values.begin(),
                                                       profile.values.end());
  for (const auto& [mark, values] : profile.values_beside)
    all.insert(all.end(), values.begin(), values.end());
  for (const auto& [option, text] : all) {
    if (!find_spec(option)) {
      throw InternalError(
          fmt::format("[{}] profile {} sets unknown option {}", command_, profile.name, option));
    }
    if (!text.starts_with("= ")) continue;
    profile_value(text, [&](const std::string& other) -> std::string {
      if (find_spec(other)) return "1";
      throw InternalError(fmt::format("[{}] profile {}: {} {}: no option {}", command_,
                                      profile.name, option, text, other));
    });
  }
  if (profiles_.empty()) {
    for (const char* name : {"profile", "profile_name"}) index_.emplace(name, specs_.size());
    specs_.push_back({.name = "profile",
                      .help = "defaults as in another system; without it, flags that only one "
                              "system has choose, then the command",
                      .aliases = {"profile_name"},
                      .group = "Profiles"});
  }
  OptionSpec& spec = specs_[index_.find("profile")->second];
  spec.choices.push_back(profile.name);
  if (profile.values.empty()) spec.default_text = profile.name;
  profiles_.push_back(std::move(profile));
}

void OptionTable::refuse_unknown_key(const std::string& key, const std::string& origin) const {
  throw UsageError(tr("{}: unknown name '{}' for danlu {}", origin, key, command_),
                   hint_for(*this, key, ""));
}

void OptionTable::check_required(const Options& options) const {
  for (const OptionSpec& spec : specs_) {
    if (!spec.required || options.has_value(spec.name)) continue;
    throw UsageError(tr("[{}] --{} is required: {}", command_, spec.name, spec.help),
                     tr("usage: {}", usage_));
  }
}

void OptionTable::refuse_unavailable(const Options& options) const {
  for (const OptionSpec& spec : specs_) {
    if (spec.unavailable_because.empty() || !options.is_set(spec.name)) continue;
    if (option_text::is_neutral(spec, *options.find(spec.name).text)) continue;
    throw UsageError(tr("[{}] {} is not available: {}", command_, options.given_as(spec.name),
                        spec.unavailable_because),
                     spec.unavailable_hint);
  }
}

void OptionTable::refuse_unavailable(const std::vector<OptionFileEntry>& entries) const {
  for (const OptionFileEntry& entry : entries) {
    const OptionSpec* spec = find_spec(entry.key);
    if (!spec || spec->unavailable_because.empty() || option_text::is_neutral(*spec, entry.text))
      continue;
    throw UsageError(tr("[{}] {}: {} is not available: {}", command_, entry.origin, entry.key,
                        spec->unavailable_because),
                     spec->unavailable_hint);
  }
}

bool OptionTable::is_group(const std::string& key) const {
  if (find_spec(key)) return false;
  if (key.ends_with('.')) {
    const std::string prefix = normalise_name(key);
    return std::any_of(specs_.begin(), specs_.end(), [&](const OptionSpec& spec) {
      return normalise_name(spec.name).starts_with(prefix);
    });
  }
  return std::any_of(specs_.begin(), specs_.end(), [&](const OptionSpec& spec) {
    return !spec.group.empty() && group_key(spec.group) == group_key(key);
  });
}

Options OptionTable::defaults() const {
  Options options;
  for (const OptionSpec& spec : specs_) {
    Options::Value value;
    value.spec = spec;
    if (!spec.default_text.empty()) {
      value.text = option_text::canonical(spec, spec.default_text, "default of --" + spec.name);
    }
    options.order_.push_back(spec.name);
    options.values_[spec.name] = std::move(value);
  }
  return options;
}

void OptionTable::choose_profile(const std::vector<TypedName>& typed, Options& options) const {
  Options::Value& value = options.values_.at("profile");
  if (value.source != OptionSource::kDefault) {
    options.profile_ = {*value.text, options.given_as("profile")};
    return;
  }
  options.profile_ = danlu::choose_profile(profiles_, typed, command_);
  if (options.profile_.name.empty()) {
    options.profile_.name = value.text.value_or("");
    return;
  }
  value.text = options.profile_.name;
  value.source = OptionSource::kProfile;
  value.origin = "by " + options.profile_.by;
}

/// Where nothing stronger gave a value.
void OptionTable::apply_profile(const std::string& name, const std::vector<TypedName>& typed,
                                Options& options) const {
  for (const OptionProfile& profile : profiles_) {
    if (profile.name != name) continue;
    std::map<std::string, std::string> values = profile.values;
    for (const TypedName& one : typed) {
      const auto older = profile.values_beside.find(one.name);
      if (older == profile.values_beside.end()) continue;
      for (const auto& [option, text] : older->second) values[option] = text;
      options.values_.at(one.option).version_mark = one.name;
    }
    for (const auto& [option, text] : values) {
      const OptionSpec& spec = *find_spec(option);
      Options::Value& value = options.values_.at(spec.name);
      if (value.source != OptionSource::kDefault) continue;
      const bool formula = text.starts_with("= ");
      value.text = formula ? text : option_text::canonical(spec, text, "profile " + name);
      value.source = OptionSource::kProfile;
      value.origin = name;
    }
  }
}

/// Values that follow from another option's, known when all others are: a formula may follow one
/// that is a formula itself.
void OptionTable::follow_formulas(Options& options) const {
  std::function<const std::string&(Options::Value&)> value_of =
      [&](Options::Value& value) -> const std::string& {
    static const std::string kNothing;
    if (!value.text) return kNothing;
    if (value.source != OptionSource::kProfile || !value.text->starts_with("= "))
      return *value.text;
    const auto other = [&](const std::string& name) { return value_of(options.values_.at(name)); };
    value.text = option_text::canonical(value.spec, profile_value(*value.text, other),
                                        "profile " + value.origin);
    return *value.text;
  };
  for (auto& [name, value] : options.values_) {
    if (value.text) value_of(value);
  }
}

void OptionTable::apply_environment(Options& options) const {
  for (const OptionSpec& spec : specs_) {
    const char* text = spec.environment.empty() ? nullptr : std::getenv(spec.environment.c_str());
    if (!text || !*text) continue;
    const std::string origin = "$" + spec.environment;
    options.values_[spec.name] = {spec, option_text::canonical(spec, text, origin),
                                  OptionSource::kEnvironment, origin, ""};
  }
}

void OptionTable::apply_files(const std::vector<OptionFileEntry>& entries, Options& options) const {
  std::map<std::pair<std::string, std::string>, const OptionFileEntry*> first;
  for (const OptionFileEntry& entry : entries) {
    const OptionSpec* spec = find_spec(entry.key);
    if (!spec) {
      refuse_unavailable(entries);
      refuse_unknown_key(entry.key, entry.origin);
    }
    if (option_text::is_inert(*spec)) {
      // One inert option stands for many names: what is switched on stays visible.
      if (options.source(spec->name) == OptionSource::kFile &&
          option_text::is_neutral(*spec, entry.text))
        continue;
    } else {
      refuse_contradiction(entry, *spec, first[{entry.file, spec->name}]);
    }
    options.values_[spec->name] = {*spec, file_text(*spec, entry), OptionSource::kFile,
                                   entry.origin, entry.key};
  }
}

Options OptionTable::parse(const std::vector<std::string>& arguments, bool accepts_config) const {
  WordReader words(*this, arguments, accepts_config);
  words.read();
  std::vector<OptionFileEntry> entries;
  for (const std::string& path : words.config_paths) {
    auto more = read_option_file(path, [this](const std::string& key) { return is_group(key); });
    entries.insert(entries.end(), more.begin(), more.end());
  }
  words.place_words(entries);
  // From the weakest source to the strongest: each overwrites what the earlier ones gave. The
  // profile comes last because what is typed chooses it, and fills what is still a default.
  Options options = defaults();
  options.positional_ = std::move(words.positional);
  apply_environment(options);
  apply_files(entries, options);
  for (const auto& [name, given] : words.flags) {
    options.values_[name] = {*find_spec(name), given.text, OptionSource::kFlag, given.spelled, ""};
  }
  for (auto& [name, value] : options.values_) {
    if (value.spec.may_be_none && value.text == option_text::kNoNumber) value.text.reset();
  }
  if (!profiles_.empty()) {
    const std::vector<TypedName> typed = typed_names(*this, entries, words.flags);
    choose_profile(typed, options);
    apply_profile(options.profile_.name, typed, options);
    follow_formulas(options);
  }

  refuse_unavailable(options);
  report_ignored(*this, ignored_mentions(*this, entries, words.flags));
  check_required(options);
  return options;
}

}  // namespace danlu
