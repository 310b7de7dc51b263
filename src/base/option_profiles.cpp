#include "base/option_profiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
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

/// What marks a profile in a line.
struct FoundMark {
  const OptionProfile* profile;
  const TypedName* mark;
  const TypedName* beside = nullptr;  ///< of marks that say something together alone
  std::string words() const {
    return beside ? tr("{} beside {}", mark->where, beside->where) : mark->where;
  }
};

/// The first of `typed` that `mark` needs beside it, or nullptr.
const TypedName* companion_of(const ProfileMark& mark, const std::vector<TypedName>& typed) {
  const auto found = std::find_if(typed.begin(), typed.end(), [&](const TypedName& one) {
    return std::find(mark.beside.begin(), mark.beside.end(), one.name) != mark.beside.end();
  });
  return found == typed.end() ? nullptr : &*found;
}

std::optional<FoundMark> mark_of(const OptionProfile& profile,
                                 const std::vector<TypedName>& typed) {
  for (const TypedName& one : typed) {
    for (const ProfileMark& mark : profile.marks) {
      if (mark.name != one.name || (!mark.unless.empty() && is_given(typed, mark.unless))) continue;
      if (mark.beside.empty()) return FoundMark{&profile, &one};
      if (const TypedName* other = companion_of(mark, typed))
        return FoundMark{&profile, &one, other};
    }
  }
  return std::nullopt;
}

}  // namespace

bool is_of_swift(const std::string& profile) { return profile.find("swift") != std::string::npos; }

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
  std::vector<FoundMark> all, found;
  for (const OptionProfile& profile : profiles) {
    if (const auto mark = mark_of(profile, typed)) all.push_back(*mark);
  }
  for (const FoundMark& one : all) {
    if (std::none_of(all.begin(), all.end(),
                     [&](const FoundMark& other) { return yields(*one.profile, *other.profile); }))
      found.push_back(one);
  }
  if (found.size() > 1) {
    throw UsageError(
        tr("[{}] {} is a flag of {}, {} one of {}: whose defaults hold where the line is "
           "silent?",
           command, found[0].words(), found[0].profile->system, found[1].words(),
           found[1].profile->system),
        tr("say --profile {} or --profile {}", found[0].profile->name, found[1].profile->name));
  }
  if (!found.empty()) return {found.front().profile->name, found.front().words()};
  for (const OptionProfile& profile : profiles) {
    const bool otherwise = !profile.unless_given.empty() && is_given(typed, profile.unless_given);
    if (profile.of_command && !otherwise) return {profile.name, "danlu " + command};
  }
  return {};
}

}  // namespace danlu
