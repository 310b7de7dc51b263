#include "base/option_profiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <sstream>

#include "base/error.h"

namespace danlu {
namespace {

bool is_given(const std::vector<TypedName>& typed, const std::string& option) {
  return std::any_of(typed.begin(), typed.end(),
                     [&](const TypedName& one) { return one.option == option; });
}

bool yields(const OptionProfile& one, const OptionProfile& other) {
  return std::find(one.yields_to.begin(), one.yields_to.end(), other.name) != one.yields_to.end();
}

/// The first name of `typed` that marks `profile`, or nullptr.
const TypedName* mark_of(const OptionProfile& profile, const std::vector<TypedName>& typed) {
  for (const TypedName& one : typed) {
    for (const ProfileMark& mark : profile.marks) {
      if (mark.name == one.name && (mark.unless.empty() || !is_given(typed, mark.unless)))
        return &one;
    }
  }
  return nullptr;
}

}  // namespace

std::string profile_value(const std::string& formula,
                          const std::function<std::string(const std::string&)>& value_of) {
  std::istringstream text(formula.substr(2));
  const std::vector<std::string> words{std::istream_iterator<std::string>(text), {}};
  if (words.size() == 7 && words[1] == "==")
    return value_of(words[0]) == words[2] ? words[4] : words[6];
  if (words.size() == 3 && words[1] == "*")
    return fmt::format("{}", std::stod(words[0]) * std::stod(value_of(words[2])));
  return value_of(formula.substr(2));
}

ProfileChoice choose_profile(const std::vector<OptionProfile>& profiles,
                             const std::vector<TypedName>& typed, const std::string& command) {
  const OptionProfile* chosen = nullptr;
  const TypedName* mark = nullptr;
  for (const OptionProfile& profile : profiles) {
    const TypedName* found = mark_of(profile, typed);
    if (!found || (chosen && yields(profile, *chosen))) continue;
    if (mark && !yields(*chosen, profile)) {
      throw UsageError(
          tr("[{}] {} is a flag of {}, {} one of {}: whose defaults hold where the line is "
             "silent?",
             command, mark->where, chosen->system, found->where, profile.system),
          tr("say --profile {} or --profile {}", chosen->name, profile.name));
    }
    chosen = &profile;
    mark = found;
  }
  if (mark) return {chosen->name, mark->where};
  for (const OptionProfile& profile : profiles) {
    const bool otherwise = !profile.unless_given.empty() && is_given(typed, profile.unless_given);
    if (profile.of_command && !otherwise) return {profile.name, "danlu " + command};
  }
  return {};
}

}  // namespace danlu
