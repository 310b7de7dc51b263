#include "cli/commands/foreign_options.h"

#include <utility>

namespace danlu::cli {
namespace {

OptionSpec named(OptionType type, const ForeignNames& names) {
  return {.name = names.front(),
          .type = type,
          .help = "accepted",
          .aliases = {names.begin() + 1, names.end()},
          .group = "Other systems"};
}

}  // namespace

OptionSpec ignored(const ForeignNames& names, std::string why) {
  OptionSpec spec = named(OptionType::kString, names);
  spec.ignored_because = std::move(why);
  return spec;
}

OptionSpec ignored_switch(const ForeignNames& names, std::string why) {
  OptionSpec spec = named(OptionType::kBool, names);
  spec.ignored_because = std::move(why);
  return spec;
}

OptionSpec unavailable(const ForeignNames& names, std::string why, ForeignNames neutral) {
  OptionSpec spec = named(OptionType::kString, names);
  spec.choices = std::move(neutral);
  spec.unavailable_because = std::move(why);
  return spec;
}

}  // namespace danlu::cli
