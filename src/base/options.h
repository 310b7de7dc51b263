// base/options.h: the option table: one description of a flag for the command line, YAML files, the
// environment, profiles and help.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/option_profiles.h"
#include "base/option_range.h"

namespace danlu {

struct OptionFileEntry;

/// What a value is about, for whoever compares two runs or two ranks of one.
enum class OptionScope {
  kRun,      ///< what is done: the same of every rank, and when the run is found again
  kMachine,  ///< where processes run: may differ from rank to rank
  kStart,    ///< how this call begins or goes on: says nothing of which run it is
};

enum class OptionType { kString, kInt, kFloat, kBool, kList, kJson };

/// One option. Names are written with underscores; dash and underscore are the same to users.
struct OptionSpec {
  std::string name;  ///< canonical, e.g. "learning_rate"
  OptionType type = OptionType::kString;
  std::string default_text = {};          ///< shown in help; "" means not set
  std::string help = {};                  ///< one line, units included
  std::vector<std::string> aliases = {};  ///< other systems' names, and one-letter flags ("j")
  std::vector<std::string> choices = {};  ///< empty: anything
  std::optional<NumberRange> range = {};  ///< of kInt and kFloat; unset: any number
  std::string group = {};                 ///< heading in --help
  std::string environment = {};  ///< variable read when neither flag nor file gives a value
  int word =
      0;  ///< 1, 2, …: given too by the word in this place, among those that no flag or file gives
  bool required = false;
  /// For kString: the flag may stand without a value and is "true" then, --no-flag is "false";
  /// other words for these two become them.
  bool may_be_alone = false;
  /// For kFloat without a default: the word "none" is given as nothing, which outweighs a profile;
  /// "null" is in a flag, and in a file a key that was not given.
  bool may_be_none = false;
  /// For kList: a map in a file is one element, its JSON.
  bool takes_map = false;
  /// For kList: an element that begins so goes on to the end of its word, commas included.
  std::string takes_rest_behind = {};
  /// For kList: a word is one element as it stands, with commas and spaces, but for a JSON list.
  bool keeps_words = false;
  OptionScope scope = OptionScope::kRun;
  /// Accepted for compatibility, has no effect here; the text says why and is printed as a notice.
  std::string ignored_because = {};
  /// Known from other systems, not built in, and of influence on the result: the error that
  /// switching it on gives. Values that change nothing are taken: none, and `choices`, else false,
  /// 0.
  std::string unavailable_because = {};
  std::string unavailable_hint = {};
  bool is_hidden = false;  ///< neither help nor completion lists it
};

enum class OptionSource { kDefault, kProfile, kEnvironment, kFile, kFlag };

/// Parsed options: typed access to values that are known to be valid for their spec.
class Options {
 public:
  bool is_set(std::string_view name) const;  ///< given by flag, file, environment or profile
  /// Given by the user for this command: by flag or file, not by environment, profile or default.
  bool is_given(std::string_view name) const;
  bool has_value(std::string_view name) const;  ///< set, or has a non-empty default
  OptionSource source(std::string_view name) const;
  /// The name to use in messages: the flag as typed ("--per_device_train_batch_size"), the file's
  /// line and key ("run.yaml:3: lr"), the variable ("NPROC_PER_NODE"), else "--name".
  std::string given_as(std::string_view name) const;
  /// Errors of the getters: InternalError if the name is not in the table or of another type;
  /// UsageError if there is no value (a list without one is empty instead).
  std::string get_string(std::string_view name) const;
  int64_t get_int(std::string_view name) const;
  double get_float(std::string_view name) const;
  bool get_bool(std::string_view name) const;
  std::vector<std::string> get_list(std::string_view name) const;
  /// Errors: UsageError for an element that is no whole number.
  std::vector<int64_t> get_int_list(std::string_view name) const;
  Json get_json(std::string_view name) const;
  std::string get_string_or(std::string_view name, std::string fallback) const;
  int64_t get_int_or(std::string_view name, int64_t fallback) const;
  double get_float_or(std::string_view name, double fallback) const;
  bool get_bool_or(std::string_view name, bool fallback) const;
  /// Whose defaults hold, and what chose them: a flag or file key as typed, or the command.
  const ProfileChoice& profile() const { return profile_; }
  /// Options whose value is the profile's.
  std::vector<std::string> from_profile() const;
  /// The options of that scope.
  std::set<std::string> names(OptionScope scope) const;
  /// Words that are neither flags nor flag values and stand for no option, in order.
  const std::vector<std::string>& positional() const { return positional_; }
  /// A copy in which `name` has the value `text` (of a list: words with commas), given by a
  /// flag that was typed as `origin`. REQUIRES: the table has it. Errors: UsageError if that cannot
  /// be a value of this option.
  Options with(std::string_view name, const std::string& text, const std::string& origin) const;
  /// A copy in which options that have no effect here (ignored_because) are as if neither the user
  /// nor a profile had named them.
  Options without_ignored() const;
  /// Every option with its value, in table order.
  Json to_json() const;
  /// The same as a configuration file that gives these options again where it is read under the
  /// same environment: what was given and the profile stand in it, the rest as comments.
  std::string print_config() const;

 private:
  friend class OptionTable;
  struct Value {
    OptionSpec spec;                  ///< a copy: options outlive their table
    std::optional<std::string> text;  ///< canonical; lists: one JSON array as text
    OptionSource source = OptionSource::kDefault;
    std::string origin;    ///< "run.yaml:3", "$NAME", a profile's name, a flag as typed
    std::string file_key;  ///< with OptionSource::kFile: the key as written
    /// The typed name by which a profile's values go; as a key of a file it says them again.
    std::string version_mark = {};
  };
  const Value& find(std::string_view name) const;
  const std::string& text_of(std::string_view name, OptionType type) const;
  std::vector<std::string> order_;
  std::map<std::string, Value, std::less<>> values_;
  std::vector<std::string> positional_;
  ProfileChoice profile_;
};

/// What a command's help says, in parts: for a terminal and for a manual page.
struct HelpPage {
  struct Entry {
    std::string flag, text;  ///< "--lr NUMBER", what it does
  };
  struct Section {
    std::string title;
    std::vector<Entry> entries;
  };
  std::string command, summary, usage;
  std::vector<Section> sections;
  std::string ignored;  ///< flags that other systems have, with no effect here; may be empty
  std::string notes;    ///< lines about all flags
};

/// The options of one command.
class OptionTable {
 public:
  OptionTable(std::string command, std::string summary, std::string usage,
              std::vector<OptionSpec> specs);

  /// Reads `--x v`, `--x=v`, `--x true`, bare `--flag`, `--no-flag`, short `-x v`, positional
  /// words; a positional that ends in .yaml/.yml/.json and `accepts_config` is read as a
  /// configuration file (keys = names or aliases, unknown keys are errors, `include:`, `${VAR}`, an
  /// `ENV:` map); so is
  /// `--config FILE` unless the command has such an option itself, and `name=value` words are
  /// flags. Precedence: flag > file > environment > profile > default. Integers may be written 2e8;
  /// booleans as yes/true/t/y/1/on and no/false/f/n/0/off, any case. A list flag takes all words up
  /// to the next flag, and may be repeated; commas split too, except inside {} or []. A JSON option
  /// takes JSON text or the path of a .json file. Words after `--` are positional. An option given
  /// twice with different values, under one name or two: the last one counts, and a notice says so;
  /// in one file that is an error, and so is a name that stands twice. Errors: UsageError naming
  /// the flag as typed, with the nearest valid name as hint; a number outside OptionSpec::range; a
  /// flag that is not available.
  Options parse(const std::vector<std::string>& arguments, bool accepts_config = false) const;

  /// Help text grouped by OptionSpec::group; stable, so that tests can hold it.
  std::string help() const;
  HelpPage help_page() const;
  const std::vector<OptionSpec>& specs() const { return specs_; }
  const std::string& command() const { return command_; }
  /// The first call adds the option `profile`. `--profile NAME` chooses one, else choose_profile;
  /// the one without values is what holds where nothing does. Its values have the profile as
  /// source.
  void add_profile(OptionProfile profile);
  /// `text` where nothing gives `name` a value. REQUIRES: the table has it, and the text fits.
  void set_default(std::string_view name, std::string text);
  /// The option that `name` (any spelling, an alias too) means, or nullptr.
  const OptionSpec* find_spec(std::string_view name) const;

 private:
  bool is_group(const std::string& key) const;
  Options defaults() const;
  void choose_profile(const std::vector<TypedName>& typed, Options& options) const;
  void apply_profile(const std::string& name, const std::vector<TypedName>& typed,
                     Options& options) const;
  void follow_formulas(Options& options) const;
  void apply_environment(Options& options) const;
  void apply_files(const std::vector<OptionFileEntry>& entries, Options& options) const;
  void check_required(const Options& options) const;
  void refuse_unavailable(const Options& options) const;
  /// Before a name is called unknown: a file for something that is not built in has other names
  /// that say more.
  void refuse_unavailable(const std::vector<OptionFileEntry>& entries) const;
  [[noreturn]] void refuse_unknown_key(const std::string& key, const std::string& origin) const;
  std::string command_, summary_, usage_;
  std::vector<OptionSpec> specs_;
  std::map<std::string, size_t, std::less<>> index_;  ///< normalised name or alias -> specs_
  std::vector<OptionProfile> profiles_;
};

}  // namespace danlu
