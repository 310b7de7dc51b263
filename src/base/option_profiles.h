// base/option_profiles.h: the hidden defaults of other systems, and whose a command line is.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace danlu {

/// A flag or file key, as typed, by which a system's command lines are known.
struct ProfileMark {
  std::string name;         ///< with underscores; this spelling alone, not the option's other names
  std::string unless = {};  ///< it says nothing where this option is given; "": it always does
  /// It says something only where one of these was typed, too; empty: alone.
  std::vector<std::string> beside = {};
};

/// What one system takes where its command line is silent.
struct OptionProfile {
  std::string name;         ///< as in --profile NAME
  std::string system = {};  ///< whose defaults these are, for people
  /// Option -> value. "= other" is that option's value in the end, "= 2 * other" a multiple of it,
  /// "= other == X ? A : B" a value that goes by it.
  std::map<std::string, std::string> values = {};
  /// Name as in ProfileMark -> values in the place of those above where it was typed: what a flag
  /// of an older version says of its version's defaults.
  std::map<std::string, std::map<std::string, std::string>> values_beside = {};
  /// Names that no other system's command lines have: one of them chooses this profile.
  std::vector<ProfileMark> marks = {};
  /// Profiles whose marks outweigh its own, where a line has both: of a system that has taken over
  /// another one's flags.
  std::vector<std::string> yields_to = {};
  bool of_command = false;        ///< the command alone stands for the system, where no mark is
  std::string unless_given = {};  ///< … but not where this option is given
};

/// A name that the user gave a value to.
struct TypedName {
  std::string name;    ///< normalised
  std::string option;  ///< the option it means
  std::string where;   ///< for messages: "--sft_type", "run.yaml:3: sft_type"
};

struct ProfileChoice {
  std::string name;  ///< "": none
  std::string by;    ///< what chose it, as it was typed; of a pair of names both
};

/// Whether a profile is ms-swift's, of any version and engine.
bool is_of_swift(const std::string& profile);

/// What a formula of OptionProfile::values gives; `value_of`: another option's value.
std::string profile_value(const std::string& formula,
                          const std::function<std::string(const std::string& option)>& value_of);

/// Whose line this is: a mark outweighs the command. Errors: UsageError where two systems' marks
/// stand in one line and neither yields, for then nobody knows which defaults were meant.
ProfileChoice choose_profile(const std::vector<OptionProfile>& profiles,
                             const std::vector<TypedName>& typed, const std::string& command);

}  // namespace danlu
