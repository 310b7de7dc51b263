// cli/commands/foreign_options.h: rows of an option table for flags that other systems have and
// Danlu has not. What cannot change a result is taken with a notice; what would is refused.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "base/options.h"

namespace danlu::cli {

/// The first name is the option's own, the others are its aliases.
using ForeignNames = std::vector<std::string>;

/// Taken with a notice that says `why` it has no effect; swallows a value.
OptionSpec ignored(const ForeignNames& names, std::string why);

/// Taken with a notice; swallows all words up to the next flag.
OptionSpec ignored_list(const ForeignNames& names, std::string why);

/// Taken with a notice; swallows the next word only if it is true or false.
OptionSpec ignored_switch(const ForeignNames& names, std::string why);

/// Refused with `why`, unless its value is `neutral`, or means "off" where no value is neutral.
OptionSpec unavailable(const ForeignNames& names, std::string why, ForeignNames neutral = {},
                       std::string hint = {});

/// The names of `specs` that are not among `known`, which then has them, too.
std::vector<OptionSpec> without_names(std::vector<OptionSpec> specs, std::set<std::string>& known);
/// Every name and alias of `specs`.
std::set<std::string> names_of(const std::vector<OptionSpec>& specs);

/// MindSpeed-MM's flags, of verbs that do not read its files.
std::vector<OptionSpec> multimodal_options();
/// Flags and keys that ask for reinforcement learning: said as such.
std::vector<OptionSpec> reinforcement_options();

}  // namespace danlu::cli
